//! `weir serve`: runs the gateway until it is told to stop.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use figment::value::Dict;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::Config;
use crate::identity;
use crate::plugins::bundled;
use crate::server::settings::ListenAddress;
use crate::server::{self, AdminSocket, Listeners, descriptors};

/// Settings that a running gateway takes up.
const TAKEN_UP: [&str; 4] = ["default_catalog", "providers", "models", "price_factors"];

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

pub(super) async fn run(
    mut config: Config,
    file: Option<PathBuf>,
    arguments: Arguments,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let sources = Config::sources(file.as_deref())?;
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
    let hangup = signal(SignalKind::hangup())?;
    let app = App::start(config, &bundled::plugins()).await?;
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
        models = app.catalog.load().models().count(),
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
    let reloading = take_up_changes(app.clone(), hangup, file, sources);
    let reloading = stop.clone().run_until_cancelled_owned(reloading);
    tokio::spawn(reloading);
    let listeners = Listeners {
        public,
        internal,
        admin,
    };
    server::serve(app, listeners, stop.cancelled_owned()).await;
    Ok(())
}

/// Reads the configuration again with each SIGHUP, and takes up what changes without a restart.
async fn take_up_changes(app: App, mut hangup: Signal, file: Option<PathBuf>, started_with: Dict) {
    while hangup.recv().await.is_some() {
        match take_up(&app, file.as_deref(), &started_with).await {
            Ok(()) => {}
            Err(error) => tracing::error!(
                "the configuration is not taken up, and the one before stays in force: {error:#}"
            ),
        }
    }
}

async fn take_up(app: &App, file: Option<&Path>, started_with: &Dict) -> anyhow::Result<()> {
    let changed = app.take_up(Config::load(file)?).await?;
    tracing::info!(
        models = app.catalog.load().models().count(),
        added = changed.added.join(", "),
        removed = changed.removed.join(", "),
        changed = changed.changed.join(", "),
        "the configuration of the catalog is taken up"
    );
    let sources = Config::sources(file)?;
    let names = started_with.keys().chain(sources.keys());
    let mut waiting: Vec<_> = names
        .filter(|name| !TAKEN_UP.contains(&name.as_str()))
        .filter(|name| started_with.get(*name) != sources.get(*name))
        .map(String::as_str)
        .collect();
    waiting.sort_unstable();
    waiting.dedup();
    if !waiting.is_empty() {
        let settings = waiting.join(", ");
        tracing::warn!(
            settings,
            "these settings have changed since the start, and come into force with the next one"
        );
    }
    Ok(())
}

/// Prints a request that works, with a key that is the same in every run.
async fn greet(app: &App, address: SocketAddr) -> anyhow::Result<()> {
    let key = identity::development_key(app, DEV_USER)
        .await
        .context("making a key for development mode")?;
    let catalog = app.catalog.load();
    let model = catalog.model("demo").map(|model| &*model.id);
    let Some(model) = model.or_else(|| catalog.models().next().map(|model| &*model.id)) else {
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
