//! The client of a gateway's swarms, with a user's key.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use http::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use url::Url;
use weir_app::config::Config;
use weir_outgoing::{self as outgoing, Client};
use weir_storage::secrets::Secret;

use super::arguments::SwarmGateway;
use crate::cli::connection::{AdminConnection, default_url, no_gateway, refusal};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of a response that is not a stream.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A user's client of a gateway.
pub(super) struct SwarmClient {
    pub(super) http: Client,
    pub(super) base: String,
    key: Secret,
}

impl SwarmClient {
    pub(super) async fn new(config: &Config, gateway: SwarmGateway) -> anyhow::Result<Self> {
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

    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let request = self.http.get(format!("{}{path}", self.base));
        let answer = self.send(request.timeout(ANSWER_TIMEOUT)).await?;
        let body = answer.bytes().await.map_err(|error| self.broken(error))?;
        serde_json::from_slice(&body).context("the gateway's response is not JSON")
    }

    /// Sends a request; turns an error response into an error.
    pub(super) async fn send(&self, request: RequestBuilder) -> anyhow::Result<Response> {
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
    pub(super) async fn ask(&self, swarm: &Value) -> anyhow::Result<String> {
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

    pub(super) fn broken(&self, error: reqwest::Error) -> anyhow::Error {
        let why = outgoing::root_cause(error);
        anyhow::anyhow!("the gateway at {} does not respond: {why}", self.base)
    }

    pub(super) async fn template(&self, name: &str) -> anyhow::Result<Value> {
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
    let running = AdminConnection::running(config).await?;
    let running = running.ok_or_else(|| no_gateway(config))?;
    let own = running.url().await?;
    if let Some(url) = url {
        ensure!(
            is_same_address(&url, &own),
            "the gateway on this machine is at {own}, and its key is valid only there: for {url}, name a key with --key-file"
        );
    }
    let key = weir_identity::own_development_key(&config.data_dir)?;
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
