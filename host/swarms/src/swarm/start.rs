//! The start of an executor in a process.

use std::net::Ipv4Addr;

use tokio::net::TcpListener;
use weir_outgoing as outgoing;
use weir_request::listen_address::reachable;

use super::Swarms;
use super::executor::Executor;
use super::model::ModelApi;
use super::run::ExecutorParts;

/// Starts the executor of a process. It calls the API at the configured URL, or else at `internal`, this process's own
/// port for other services. If there is no such port, weir opens one for this machine alone.
pub async fn start_executor(
    swarms: &Swarms,
    internal: &mut Option<TcpListener>,
) -> anyhow::Result<Executor> {
    let settings = &swarms.settings;
    let url = match &settings.api_url {
        Some(url) => url.clone(),
        None => {
            if internal.is_none() {
                *internal = Some(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?);
            }
            let own = internal.as_ref().map(TcpListener::local_addr);
            let own = own.transpose()?.map(reachable);
            own.map_or_else(String::new, |own| format!("http://{own}"))
        }
    };
    executor_at(swarms, &url)
}

/// Starts an executor for the API whose internal port has this base URL.
pub fn executor_at(swarms: &Swarms, url: &str) -> anyhow::Result<Executor> {
    let http = outgoing::client(swarms.inference.timeouts.connect())?;
    let shop = ExecutorParts {
        store: swarms.store.clone(),
        database: swarms.inference.database.clone(),
        ledger: swarms.inference.ledger.clone(),
        background: swarms.inference.background.clone(),
        catalog: swarms.inference.catalog.clone(),
        api: ModelApi::new(http, url, swarms.service_tokens.clone()),
        tools: swarms.tools.clone(),
        credentials: swarms.credentials.clone(),
        deltas: swarms.deltas.clone(),
        metrics: swarms.metrics.clone(),
        tracer: swarms.tracer.clone(),
    };
    let owner = swarms.inference.ledger.boot_id().as_str();
    let settings = swarms.settings.executor();
    let wake = swarms.wake.clone();
    Ok(Executor::start(shop, settings, owner, wake))
}
