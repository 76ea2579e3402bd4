//! `weir swarm`: swarms of a user's, at any gateway, with a key of theirs.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use http::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use super::connection::{default_url, path};
use super::table::TextTable;
use crate::config::Config;
use crate::identity::api_key::RawKey;
use crate::outgoing::{self, Client};
use weir_storage::secrets::{Key, Secret};

/// The time that connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that an answer may take which does not go on.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Characters of an output in a line.
const LINE_CHARS: usize = 100;

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    gateway: Gateway,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Args)]
struct Gateway {
    /// The gateway, by its public port. Default: where this configuration listens.
    #[arg(long, value_name = "URL", global = true)]
    url: Option<String>,
    /// A file with an API key of the user's. Default: in development mode, the key that `weir serve` prints.
    #[arg(long, value_name = "FILE", env = "WEIR_API_KEY_FILE", global = true)]
    key_file: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run a swarm, say what happens in it, and print its last output.
    Run {
        /// A file with the swarm, as POST /swarms takes it.
        #[arg(value_name = "FILE", required_unless_present = "template")]
        file: Option<PathBuf>,
        /// One of the templates instead, e.g. "Content Pipeline".
        #[arg(long, value_name = "NAME", conflicts_with = "file")]
        template: Option<String>,
        /// What the first agent is told besides.
        #[arg(long, value_name = "TEXT")]
        context: Option<String>,
    },
    /// List swarms, the last one first.
    List {
        /// How many, at most 1000.
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// Print one with the results of its agents, as JSON.
    Show {
        /// Its id: see `weir swarm list`.
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Have one end before its next step.
    Cancel {
        /// Its id.
        #[arg(value_name = "ID")]
        id: String,
    },
}

struct Caller {
    http: Client,
    base: String,
    key: Secret,
}

pub(super) async fn run(config: Config, arguments: Arguments) -> anyhow::Result<()> {
    let caller = Caller::new(&config, arguments.gateway)?;
    match arguments.command {
        Command::Run {
            file,
            template,
            context,
        } => {
            let mut swarm = match (file, template) {
                (Some(file), _) => read(&file)?,
                (None, Some(name)) => caller.template(&name).await?,
                (None, None) => bail!("name a file or a template"),
            };
            if let Some(context) = context {
                swarm["context"] = json!(context);
            }
            caller.follow(&swarm).await
        }
        Command::List { limit } => {
            let query = [("limit", Some(limit.to_string()))];
            let list = caller.get(&path(&["swarms"], &query)).await?;
            print_list(&list);
            Ok(())
        }
        Command::Show { id } => {
            let swarm = caller.get(&path(&["swarms", &id], &[])).await?;
            println!("{swarm:#}");
            Ok(())
        }
        Command::Cancel { id } => {
            let url = format!("{}{}", caller.base, path(&["swarms", &id], &[]));
            caller.send(caller.http.delete(url)).await?;
            eprintln!("It ends before its next step.");
            Ok(())
        }
    }
}

impl Caller {
    fn new(config: &Config, gateway: Gateway) -> anyhow::Result<Self> {
        let base = match gateway.url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => default_url(config)?,
        };
        let key = match gateway.key_file {
            Some(file) => {
                let key = std::fs::read_to_string(&file)
                    .with_context(|| format!("reading {}", file.display()))?;
                Secret::new(key.trim().to_owned())
            }
            None if config.is_dev() => {
                let file = config.data_dir.join("keys/development-api-key");
                let key = RawKey::derived(&Key::load_or_create(&file)?);
                Secret::new(key.expose().to_owned())
            }
            None => bail!("name a file with an API key of the user's with --key-file"),
        };
        Ok(Self {
            http: outgoing::client(CONNECT_TIMEOUT)?,
            base,
            key,
        })
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let request = self.http.get(format!("{}{path}", self.base));
        let answer = self.send(request.timeout(ANSWER_TIMEOUT)).await?;
        let body = answer.bytes().await.map_err(|error| self.broken(error))?;
        serde_json::from_slice(&body).context("the gateway's answer is no JSON")
    }

    /// Sends a request, and refuses an answer that is an error.
    async fn send(&self, request: RequestBuilder) -> anyhow::Result<Response> {
        let sent = request.bearer_auth(self.key.expose()).send().await;
        let answer = sent.map_err(|error| self.broken(error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let body = answer.bytes().await.unwrap_or_default();
        let error: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (code, message) = (&error["error"]["code"], &error["error"]["message"]);
        match (code.as_str(), message.as_str()) {
            (Some(code), Some(message)) => match error["error"]["param"].as_str() {
                Some(param) => bail!("{code}: {param}: {message}"),
                None => bail!("{code}: {message}"),
            },
            _ => bail!("the gateway at {} answers with {status}", self.base),
        }
    }

    fn broken(&self, error: reqwest::Error) -> anyhow::Error {
        let why = outgoing::root_cause(error);
        anyhow::anyhow!("the gateway at {} does not answer: {why}", self.base)
    }

    async fn template(&self, name: &str) -> anyhow::Result<Value> {
        let list = self.get("/swarms/templates").await?;
        let templates = list["templates"].as_array().map_or(&[][..], Vec::as_slice);
        let found = templates.iter().find(|template| template["name"] == name);
        let Some(template) = found else {
            let names: Vec<_> = templates
                .iter()
                .filter_map(|template| template["name"].as_str())
                .collect();
            bail!(
                "there is no template {name:?}; there are: {}",
                names.join(", ")
            );
        };
        Ok(json!({ "swarm_id": name, "agents": template["agents"] }))
    }

    /// Runs a swarm and tells what happens. Fails if it does not complete.
    async fn follow(&self, swarm: &Value) -> anyhow::Result<()> {
        let request = self
            .http
            .post(format!("{}/swarms", self.base))
            .header(ACCEPT, "text/event-stream")
            .header(CONTENT_TYPE, "application/json")
            .body(swarm.to_string());
        let mut answer = self.send(request).await?;
        let mut text = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.broken(error))? {
            text.extend_from_slice(&chunk);
            while let Some(end) = text.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = text.drain(..end + 2).collect();
                let event = String::from_utf8_lossy(&event);
                let Some((name, data)) = read_event(&event) else {
                    continue;
                };
                if name == "swarm_done" {
                    return finish(&data);
                }
                if let Some(line) = line_of(name, &data) {
                    eprintln!("{line}");
                }
            }
        }
        bail!(
            "the gateway at {} stopped telling; the swarm goes on: see `weir swarm list`",
            self.base
        )
    }
}

fn read(file: &PathBuf) -> anyhow::Result<Value> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", file.display()))
}

/// An event's name and payload; none of a comment.
fn read_event(event: &str) -> Option<(&str, Value)> {
    let field = |name: &str| {
        let mut lines = event.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    Some((field("event")?, serde_json::from_str(field("data")?).ok()?))
}

/// What people are told of an event.
fn line_of(name: &str, data: &Value) -> Option<String> {
    let text = |field: &str| data[field].as_str().unwrap_or_default();
    let agent = text("agent");
    match name {
        "agent_start" => Some(format!("{agent}: begins on {}", text("model"))),
        "tool_call" => {
            let status = &data["response_status"];
            let outcome = match data["blocked_reason"].as_str() {
                Some(why) => format!("blocked: {why}"),
                None if status.is_null() => "no answer".to_owned(),
                None => status.to_string(),
            };
            Some(format!(
                "{agent}: {} {}: {outcome}",
                text("tool"),
                text("url")
            ))
        }
        "agent_done" => {
            let said = data["error"].as_str().unwrap_or(text("output"));
            let said: String = said
                .lines()
                .next()
                .unwrap_or_default()
                .chars()
                .take(LINE_CHARS)
                .collect();
            Some(format!(
                "{agent}: {} after {} iterations, {} s, {} + {} tokens, {} credits: {said}",
                text("status"),
                data["iterations"],
                data["duration_seconds"],
                data["tokens_in"],
                data["tokens_out"],
                data["credits_used"],
            ))
        }
        _ => None,
    }
}

fn finish(record: &Value) -> anyhow::Result<()> {
    let text = |field: &str| record[field].as_str().unwrap_or_default();
    eprintln!(
        "{} {}: {} of {} agents, {} + {} tokens, {} credits",
        text("execution_id"),
        text("status"),
        record["agents_completed"],
        record["agents_total"],
        record["tokens_in"],
        record["tokens_out"],
        record["total_credits"],
    );
    println!("{}", text("content"));
    match text("status") {
        "completed" => Ok(()),
        _ => bail!("the swarm did not complete. {}", text("error")),
    }
}

fn print_list(list: &Value) {
    let mut table = TextTable::new(&["ID", "SWARM", "STATUS", "AGENTS", "CREDITS", "CREATED"]);
    for swarm in list["swarms"].as_array().into_iter().flatten() {
        let text = |field: &str| swarm[field].as_str().unwrap_or_default().to_owned();
        table.row([
            text("execution_id"),
            text("swarm_id"),
            text("status"),
            format!("{}/{}", swarm["agents_completed"], swarm["agents_total"]),
            swarm["total_credits"].to_string(),
            text("created_at"),
        ]);
    }
    table.print();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_told_in_a_line() {
        let told = |event: &str| {
            let (name, data) = read_event(event)?;
            line_of(name, &data)
        };
        let start = "id: 1\nevent: agent_start\ndata: {\"agent\":\"Scout\",\"model\":\"demo\"}\n\n";
        assert_eq!(told(start).as_deref(), Some("Scout: begins on demo"));
        let call = "event: tool_call\ndata: {\"agent\":\"Scout\",\"tool\":\"http_get\",\"url\":\"https://a.example\",\
                    \"response_status\":200,\"blocked_reason\":null}\n\n";
        assert_eq!(
            told(call).as_deref(),
            Some("Scout: http_get https://a.example: 200")
        );
        assert_eq!(told(": keep-alive\n\n"), None);
    }
}
