//! `weir serve`: runs the gateway until it is told to stop.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::Config;
use crate::identity;
use crate::plugins::bundled;
use crate::server::settings::ListenAddress;
use crate::server::{self, AdminSocket, Listeners, descriptors};

/// The user whose key development mode prints.
const DEV_USER: &str = "dev";

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Where to listen, instead of the configured address; port 0 picks a free one.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<ListenAddress>,
    /// Development mode, also beside a PostgreSQL or Redis that is configured.
    #[arg(long)]
    dev: bool,
}

pub(super) async fn run(mut config: Config, arguments: Arguments) -> anyhow::Result<()> {
    let started = Instant::now();
    config.listen = arguments.listen.unwrap_or(config.listen);
    if arguments.dev {
        config.dev = Some(true);
    }
    config.check()?;
    config.check_mode()?;
    let listeners = 1 + u64::from(config.internal_listen.is_some());
    let upstream_calls = config.limits.admission.concurrent_requests.get().into();
    descriptors::provide(&mut config.limits.connections, listeners, upstream_calls);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let app = App::start(config, &bundled::adapters()).await?;
    let public = app.config.listen.bind().await?;
    let internal = match &app.config.internal_listen {
        Some(address) => Some(address.bind().await?),
        None => None,
    };
    let admin = app.config.admin_socket_path();
    let admin = admin.as_deref().map(AdminSocket::bind).transpose()?;
    let address = public.local_addr()?;
    if let Some(internal) = &internal {
        tracing::info!(address = %internal.local_addr()?, "listening for other services");
    }
    tracing::info!(
        %address,
        models = app.catalog.models().count(),
        milliseconds = started.elapsed().as_millis() as u64,
        "ready"
    );
    if app.config.is_dev() {
        greet(&app, address).await?;
    }
    let stop = CancellationToken::new();
    let (told, shutdown) = (stop.clone(), app.shutdown.clone());
    tokio::spawn(async move {
        for (token, what) in [
            (told, "stopping; a second signal stops at once"),
            (shutdown, "stopping at once"),
        ] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            tracing::info!("{what}");
            token.cancel();
        }
    });
    let listeners = Listeners {
        public,
        internal,
        admin,
    };
    server::serve(app, listeners, stop.cancelled_owned()).await;
    Ok(())
}

/// Prints a request that works, with a key that is the same in every run.
async fn greet(app: &App, address: SocketAddr) -> anyhow::Result<()> {
    let key = identity::development_key(app, DEV_USER)
        .await
        .context("making a key for development mode")?;
    let model = app.catalog.model("demo").map(|model| &*model.id);
    let Some(model) = model.or_else(|| app.catalog.models().next().map(|model| &*model.id)) else {
        println!("weir is in development mode at http://{address}; its catalog has no model.");
        return Ok(());
    };
    println!(
        "weir is in development mode: it serves this machine only. Try it:\n\n  \
         curl http://{address}/v1/chat/completions -H 'Authorization: Bearer {key}' \
         -H 'Content-Type: application/json' \
         -d '{{\"model\":\"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello, weir!\"}}]}}'\n",
        key = key.expose(),
    );
    Ok(())
}
