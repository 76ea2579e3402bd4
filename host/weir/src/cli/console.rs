//! `weir console`: a one-time link to the console, for an administrator.

use anyhow::{Context, ensure};
use serde_json::json;
use url::Url;
use weir_app::config::Config;
use weir_console::admin::gateway::ConsoleLink;

use super::connection::{AdminConnection, GatewayAnswer, no_gateway};

#[derive(clap::Args)]
pub(super) struct ConsoleArguments {
    /// The gateway's URL as your browser reaches it, such as https://weir.example.com behind a proxy. Default: the
    /// address on which the gateway listens.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Print the gateway's response as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(config: Config, arguments: ConsoleArguments) -> anyhow::Result<()> {
    let url = arguments.url.as_deref().map(own_url).transpose()?;
    let running = AdminConnection::running(&config).await?;
    let connection = running.ok_or_else(|| no_gateway(&config))?;
    let made: GatewayAnswer<ConsoleLink> =
        connection.post("/local/console-link", &json!({})).await?;
    let base = url.or_else(|| made.parsed.url.clone());
    let base = base.context(
        "the gateway on this machine is an executor without an API: name the API with --url",
    )?;
    made.show(arguments.json, |link| println!("{base}{}", link.path));
    if !arguments.json {
        eprintln!(
            "Open the link in a browser: it signs in one administrator, once, until {}.",
            made.parsed.expires_at
        );
        if base.starts_with("http://") && !config.is_dev() {
            eprintln!(
                "Browsers keep the session cookie only over HTTPS: behind a proxy that terminates TLS, use --url with the proxy's URL."
            );
        }
    }
    Ok(())
}

fn own_url(url: &str) -> anyhow::Result<String> {
    let parsed = Url::parse(url).with_context(|| format!("--url: {url:?} is not a URL"))?;
    ensure!(
        matches!(parsed.scheme(), "http" | "https") && parsed.path() == "/",
        "--url takes a scheme, a host and a port, such as https://weir.example.com"
    );
    Ok(url.trim_end_matches('/').to_owned())
}
