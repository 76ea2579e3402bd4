//! The commands, and their results.

use serde::Deserialize;

use crate::bindings::exports::weir::plugin::tool::{CallContext, Description, Failure, Guest};
use crate::bindings::weir::plugin::log::{self, Level};
use crate::bindings::weir::plugin::outbound::{self, Method, Request};

/// The tool.
pub(crate) struct Tool;

/// The command to the tool.
#[derive(Deserialize)]
#[serde(tag = "behave", rename_all = "kebab-case")]
enum Command {
    /// Returns `ok`.
    Well,
    /// Returns its complete input.
    Context,
    /// Sends these requests, one after another, and returns all results; also to the log.
    Fetch { requests: Vec<Asked> },
    /// Sends this request again and again.
    FetchForEver { url: String },
    /// Computes for ever.
    Spin,
    /// Panics.
    Trap,
    /// Returns a failure.
    Fail,
    /// Returns this many bytes.
    Flood { bytes: usize },
    /// Posts this many bytes.
    Post { url: String, bytes: usize },
    /// Takes memory until it is refused.
    Grow,
}

#[derive(Deserialize)]
struct Asked {
    url: String,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    credential: Option<String>,
}

impl Guest for Tool {
    fn describe() -> Description {
        Description {
            name: "scheming".to_owned(),
            version: "0.1.0".to_owned(),
            description: "Schemes.".to_owned(),
            input_schema: r#"{"type":"object","required":["behave"]}"#.to_owned(),
        }
    }

    fn call(arguments: String, context: CallContext) -> Result<String, Failure> {
        let command = serde_json::from_str(&arguments)
            .map_err(|error| Failure::InvalidArguments(error.to_string()))?;
        Ok(match command {
            Command::Well => "ok".to_owned(),
            Command::Context => format!("{context:?}"),
            Command::Fetch { requests } => {
                let told: Vec<_> = requests.into_iter().map(fetch).collect();
                let told = told.join("\n");
                log::write(Level::Info, &told);
                told
            }
            Command::FetchForEver { url } => loop {
                // The response does not matter.
                let _ = outbound::fetch(&get(&url));
            },
            Command::Spin => {
                let mut turns = 0_u64;
                loop {
                    turns = std::hint::black_box(turns.wrapping_add(1));
                }
            }
            Command::Trap => panic!("a trap"),
            Command::Fail => return Err(Failure::Failed("it failed".to_owned())),
            Command::Flood { bytes } => "x".repeat(bytes),
            Command::Post { url, bytes } => {
                let request = Request {
                    method: Method::Post,
                    body: Some(vec![b'x'; bytes]),
                    ..get(&url)
                };
                format!("{:?}", outbound::fetch(&request))
            }
            Command::Grow => {
                let mut kept = Vec::new();
                loop {
                    kept.push(std::hint::black_box(vec![1_u8; 1 << 20]));
                }
            }
        })
    }
}

fn get(url: &str) -> Request {
    Request {
        method: Method::Get,
        url: url.to_owned(),
        headers: Vec::new(),
        body: None,
        credential: None,
    }
}

fn fetch(asked: Asked) -> String {
    let method = match asked.method.as_deref() {
        Some("POST") => Method::Post,
        Some("PUT") => Method::Put,
        Some("DELETE") => Method::Delete,
        _ => Method::Get,
    };
    let request = Request {
        method,
        url: asked.url,
        headers: asked.headers,
        body: asked.body.map(String::into_bytes),
        credential: asked.credential,
    };
    match outbound::fetch(&request) {
        Ok(response) => {
            let body = String::from_utf8_lossy(&response.body);
            let (status, headers) = (response.status, response.headers);
            format!("{status} {headers:?} {body}")
        }
        Err(failure) => format!("{failure:?}"),
    }
}
