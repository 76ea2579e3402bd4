//! The commands, and what becomes of each.

use serde::Deserialize;

use crate::bindings::exports::weir::plugin::tool::{CallContext, Description, Failure, Guest};
use crate::bindings::weir::plugin::log::{self, Level};
use crate::bindings::weir::plugin::outbound::{self, Method, Request};

/// The tool.
pub(crate) struct Tool;

/// What it is told to do.
#[derive(Deserialize)]
#[serde(tag = "behave", rename_all = "kebab-case")]
enum Command {
    /// Answers `ok`.
    Well,
    /// Says all that it was handed.
    Context,
    /// Sends these, one after another, and says all that comes of each; to the log, too.
    Fetch { requests: Vec<Asked> },
    /// Sends this again and again.
    FetchForEver { url: String },
    /// Computes for ever.
    Spin,
    /// Panics.
    Trap,
    /// Says that it failed.
    Fail,
    /// Answers with so many bytes.
    Flood { bytes: usize },
    /// Posts so many bytes.
    Post { url: String, bytes: usize },
    /// Asks for memory until there is no more.
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
                // Whatever it is answered.
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
