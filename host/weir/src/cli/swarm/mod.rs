//! `weir swarm`: a user's swarms, at any gateway, with the user's key.
//!
//! **Invariant:** text from a model, a tool or another user never controls the terminal: see [`terminal`].

mod follow;
mod operator;
mod terminal;
mod view;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use http::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use url::Url;
use weir_outgoing::{self as outgoing, Client};

use super::connection::{Connection, Offline, default_url, no_gateway, path, refusal};
use super::table::TextTable;
use crate::config::Config;
use crate::identity;
use weir_storage::secrets::Secret;

/// Connect timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of a response that is not a stream.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    gateway: Gateway,
    #[command(subcommand)]
    command: Command,
}

impl Arguments {
    /// Returns whether the command needs the gateway on this machine for its address or its key.
    pub(super) fn asks_gateway(&self) -> bool {
        self.gateway.url.is_none() || self.gateway.key_file.is_none()
    }
}

#[derive(clap::Args)]
struct Gateway {
    /// The gateway's public URL. Default: the gateway on this machine; with --key-file, the address that this
    /// configuration listens on.
    #[arg(long, value_name = "URL", global = true)]
    url: Option<String>,
    /// Act as an operator on all users' swarms, through the gateway's admin socket, without a key. Works for list and
    /// cancel.
    #[arg(long, global = true, conflicts_with_all = ["url", "key_file"])]
    operator: bool,
    #[command(flatten)]
    offline: Offline,
    /// A file with the user's API key. Default: in development mode, the key that `weir serve` prints; weir sends it
    /// only to that gateway.
    #[arg(long, value_name = "FILE", env = "WEIR_API_KEY_FILE", global = true)]
    key_file: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run a swarm, show its progress, and print its last output.
    ///
    /// In a terminal, weir draws the agents as they work; otherwise it prints events as lines on standard error. After
    /// Ctrl-C the swarm continues. NO_COLOR disables colours.
    Run {
        /// A file with the swarm, in the format of POST /swarms.
        #[arg(value_name = "FILE", required_unless_present = "template")]
        file: Option<PathBuf>,
        /// A template to use instead of a file, such as "Content Pipeline".
        #[arg(long, value_name = "NAME", conflicts_with = "file")]
        template: Option<String>,
        /// Additional context for the first agent.
        #[arg(long, value_name = "TEXT")]
        context: Option<String>,
    },
    /// List swarms, newest first.
    List {
        /// Maximum number of swarms, up to 1000.
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// Continue before the swarm with this id.
        #[arg(long, value_name = "ID")]
        before: Option<String>,
        /// List only this user's swarms; requires --operator.
        #[arg(long, value_name = "ID")]
        user: Option<String>,
        /// List only queued and running swarms; requires --operator.
        #[arg(long)]
        open: bool,
    },
    /// Print a swarm with its agents' results, as JSON.
    Show {
        /// The swarm's id: see `weir swarm list`.
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Cancel a swarm before its next step.
    Cancel {
        /// The swarm's id.
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Delete a finished swarm with all its data.
    Delete {
        /// The swarm's id.
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
    if arguments.gateway.operator {
        return operator::run(&config, arguments.gateway.offline, arguments.command).await;
    }
    let caller = Caller::new(&config, arguments.gateway).await?;
    match arguments.command {
        Command::Run {
            file,
            template,
            context,
        } => {
            let mut swarm = match (file, template) {
                (Some(file), _) => read(&file)?,
                (None, Some(name)) => caller.template(&name).await?,
                (None, None) => bail!("name a file or a template with --template"),
            };
            if let Some(context) = context {
                swarm["context"] = json!(context);
            }
            follow::run(&caller, &swarm).await
        }
        Command::List {
            limit,
            before,
            user,
            open,
        } => {
            if user.is_some() || open {
                bail!("--user and --open require --operator");
            }
            let query = [("limit", Some(limit.to_string())), ("before", before)];
            let list = caller.get(&path(&["swarms"], &query)).await?;
            print_list(&list);
            if let Some(next) = list["next"].as_str() {
                eprintln!("More swarms exist: --before {}", terminal::line(next));
            }
            Ok(())
        }
        Command::Show { id } => {
            let swarm = caller.get(&path(&["swarms", &id], &[])).await?;
            terminal::print(&format!("{swarm:#}"));
            Ok(())
        }
        Command::Cancel { id } => {
            let cancel = path(&["swarms", &id, "cancel"], &[]);
            let url = format!("{}{cancel}", caller.base);
            caller.send(caller.http.post(url)).await?;
            eprintln!("The swarm ends before its next step.");
            Ok(())
        }
        Command::Delete { id } => {
            let swarm = path(&["swarms", &id], &[]);
            let shown = caller.get(&swarm).await?;
            if ["queued", "running"]
                .iter()
                .any(|open| shown["status"] == *open)
            {
                bail!("the swarm has not finished; cancel it first: weir swarm cancel {id}");
            }
            caller
                .send(caller.http.delete(format!("{}{swarm}", caller.base)))
                .await?;
            eprintln!("Deleted {id}.");
            Ok(())
        }
    }
}

impl Caller {
    async fn new(config: &Config, gateway: Gateway) -> anyhow::Result<Self> {
        let url = gateway.url.map(|url| url.trim_end_matches('/').to_owned());
        let (base, key) = match gateway.key_file {
            Some(file) => {
                let key = std::fs::read_to_string(&file)
                    .with_context(|| format!("reading {}", file.display()))?;
                let base = url.map_or_else(|| default_url(config), Ok)?;
                (base, Secret::new(key.trim().to_owned()))
            }
            None if config.is_dev() => own_gateway(config, url).await?,
            None => bail!("name a file with the user's API key with --key-file"),
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
        serde_json::from_slice(&body).context("the gateway's response is not JSON")
    }

    /// Sends a request; turns an error response into an error.
    async fn send(&self, request: RequestBuilder) -> anyhow::Result<Response> {
        let sent = request.bearer_auth(self.key.expose()).send().await;
        let answer = sent.map_err(|error| self.broken(error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let body = answer.bytes().await.unwrap_or_default();
        Err(refusal(status, &body))
    }

    /// Starts a swarm. Returns its id.
    async fn ask(&self, swarm: &Value) -> anyhow::Result<String> {
        let request = self.http.post(format!("{}/swarms", self.base));
        let request = request
            .timeout(ANSWER_TIMEOUT)
            .header(CONTENT_TYPE, "application/json")
            .body(swarm.to_string());
        let answer = self.send(request).await?;
        let body = answer.bytes().await.map_err(|error| self.broken(error))?;
        let record: Value = serde_json::from_slice(&body).unwrap_or_default();
        let id = record["execution_id"].as_str();
        id.map(str::to_owned)
            .context("the gateway has another version")
    }

    fn broken(&self, error: reqwest::Error) -> anyhow::Error {
        let why = outgoing::root_cause(error);
        anyhow::anyhow!("the gateway at {} does not respond: {why}", self.base)
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
                "the template {name:?} does not exist; choose one of: {}",
                names.join(", ")
            );
        };
        Ok(json!({ "swarm_id": name, "agents": template["agents"] }))
    }
}

/// Returns the address of the gateway on this machine and the key of its development user. The command sends the key to
/// no other address: another gateway may listen on the configured address or on the address in the arguments.
async fn own_gateway(config: &Config, url: Option<String>) -> anyhow::Result<(String, Secret)> {
    let running = Connection::running(config).await?;
    let running = running.ok_or_else(|| no_gateway(config))?;
    let own = running.url().await?;
    if let Some(url) = url {
        ensure!(
            is_same_address(&url, &own),
            "the gateway on this machine is at {own}, and its key is valid only there: for {url}, name a key with --key-file"
        );
    }
    let key = identity::own_development_key(&config.data_dir)?;
    Ok((own, Secret::new(key.expose().to_owned())))
}

/// Returns whether two URLs lead to the same port of this machine.
fn is_same_address(url: &str, own: &str) -> bool {
    let (Ok(url), Ok(own)) = (Url::parse(url), Url::parse(own)) else {
        return false;
    };
    let same_host = url.host_str() == own.host_str() || url.host_str() == Some("localhost");
    same_host
        && url.scheme() == own.scheme()
        && url.port_or_known_default() == own.port_or_known_default()
}

fn read(file: &PathBuf) -> anyhow::Result<Value> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))
}

fn print_list(list: &Value) {
    let mut table = TextTable::new(&["ID", "SWARM", "STATUS", "AGENTS", "CREDITS", "CREATED"]);
    for swarm in list["swarms"].as_array().into_iter().flatten() {
        let text = |field: &str| terminal::line(swarm[field].as_str().unwrap_or_default());
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
