//! `weir serve`: runs the gateway until a signal stops it.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::Context;
use axum::extract::FromRef as _;
use figment::value::Dict;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use weir_app::App;
use weir_app::config::Config;
use weir_console::admin::users;
use weir_identity::DEVELOPMENT_USER;
use weir_inference::plugins::{PluginParts, watch};
use weir_ledger::{AccountId, Plan};
use weir_plugins::progress::CompileProgress;
use weir_request::listen_address::ListenAddress;
use weir_storage::database;
use weir_swarms::swarm;
use weir_swarms::swarm::executor::Executor;

use super::development;
use super::output::program;

use crate::cli::bundle::bundle;
use crate::cli::user_folder::shared_code;
use crate::server::{self, AdminSocket, Listeners, descriptors, starting};

/// Settings that a running gateway reloads.
const TAKEN_UP: [&str; 10] = [
    "default_catalog",
    "providers",
    "models",
    "price_factors",
    "plans",
    "filters",
    "tools",
    "integrations",
    "credentials",
    "mcp",
];

#[derive(clap::Args)]
pub(super) struct ServeArguments {
    /// Listen on this address instead of the configured one; port 0 selects a free port.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<ListenAddress>,
    /// Run in development mode even if PostgreSQL or Redis is configured.
    #[arg(long)]
    dev: bool,
    /// The role: the API, an executor that runs swarms, or both.
    #[arg(long, value_enum, default_value = "all")]
    role: Role,
    /// Load NAME.wasm from this folder into the slot NAME, and reload it after each change. Requires development mode.
    #[arg(long, value_name = "DIR")]
    watch_plugins: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Role {
    /// The API and an executor.
    All,
    /// The API without an executor.
    Api,
    /// An executor without the API; requires `swarms.api_url`.
    Executor,
}

pub(super) async fn run(
    mut config: Config,
    file: Option<PathBuf>,
    arguments: ServeArguments,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let sources = Config::sources(file.as_deref())?;
    config.listen = arguments.listen.unwrap_or(config.listen);
    if arguments.dev {
        config.dev = Some(true);
    }
    config.check()?;
    config.check_mode()?;
    let role = arguments.role;
    anyhow::ensure!(
        role != Role::Executor || config.swarms.api_url.is_some(),
        "`swarms.api_url` is not set: an executor needs the URL of the API"
    );
    if let Some(folder) = &arguments.watch_plugins {
        anyhow::ensure!(
            config.is_dev(),
            "--watch-plugins requires development mode: otherwise every file in the folder would serve all users"
        );
        anyhow::ensure!(
            folder.is_dir(),
            "--watch-plugins: {} is not a folder",
            folder.display()
        );
    }
    // Public connections and connections of services.
    let listeners = 2 + u64::from(config.swarms.listen.is_some());
    let upstream_calls = config.limits.admission.concurrent_requests.get().into();
    descriptors::provide(&mut config.limits.connections, listeners, upstream_calls);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let hangup = signal(SignalKind::hangup())?;
    // Binding precedes all slow steps: a port conflict shows immediately.
    let bound = BoundSockets::at(&config, role).await?;
    if let Some(public) = &bound.public {
        tracing::info!(address = %public.local_addr()?, "starting: weir returns 503 until loading is complete");
    }
    let progress = CompileProgress::telling(|line| tracing::info!("{line}"));
    let plugins = bundle().plugins();
    let start = App::start(config.clone(), &plugins, shared_code(), &progress);
    let start = starting::answer_until(start, bound.public.as_ref(), &config, &progress);
    let app = tokio::select! {
        app = start => app?,
        _ = interrupt.recv() => return stopped_early(),
        _ = terminate.recv() => return stopped_early(),
    };
    let (listeners, executor) = bound.listen(&app, role).await?;
    if app.config.is_dev() {
        development::leave_link(&app.config);
    }
    let address = match &listeners.public {
        Some(public) => Some(public.local_addr()?),
        None => None,
    };
    tracing::info!(
        address = address.map(tracing::field::display),
        models = app.catalog.load().models().count(),
        milliseconds = started.elapsed().as_millis() as u64,
        "ready"
    );
    if let Some(address) = address.filter(|_| app.config.is_dev()) {
        greet(&app, address).await?;
    }
    let stop = CancellationToken::new();
    let (told, shutdown) = (stop.clone(), app.shutdown.clone());
    tokio::spawn(async move {
        for (token, what) in [
            (told, "shutting down; a second signal stops immediately"),
            (shutdown, "stopping immediately"),
        ] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            tracing::info!("{what}");
            token.cancel();
        }
    });
    if let Some(folder) = arguments.watch_plugins {
        let (parts, draining) = (PluginParts::from_ref(&app), app.draining.clone());
        tokio::spawn(async move { watch::watch(&parts, &folder, &draining).await });
    }
    let reloading = take_up_changes(app.clone(), hangup, file, sources);
    let reloading = stop.clone().run_until_cancelled_owned(reloading);
    tokio::spawn(reloading);
    server::serve(app, listeners, executor, stop.cancelled_owned()).await;
    Ok(())
}

/// Work in progress is in the same state as after a crash; the next start recovers it.
fn stopped_early() -> anyhow::Result<()> {
    tracing::info!("stopped before startup was complete");
    Ok(())
}

/// The sockets of a role, bound.
struct BoundSockets {
    public: Option<TcpListener>,
    internal: Option<TcpListener>,
    executors: Option<TcpListener>,
}

impl BoundSockets {
    async fn at(config: &Config, role: Role) -> anyhow::Result<Self> {
        let bind = async |address: Option<&ListenAddress>| match address {
            Some(address) => address.bind().await.map(Some),
            None => Ok(None),
        };
        let is_api = role != Role::Executor;
        let executors = config.swarms.listen.as_ref();
        Ok(Self {
            public: bind(is_api.then_some(&config.listen)).await?,
            internal: bind(config.internal_listen.as_ref().filter(|_| is_api)).await?,
            executors: bind(executors.filter(|_| role != Role::Api)).await?,
        })
    }

    /// Binds the admin socket as well, and starts the role's executor.
    async fn listen(
        mut self,
        app: &App,
        role: Role,
    ) -> anyhow::Result<(Listeners, Option<Executor>)> {
        for (listener, what) in [
            (&self.internal, "listening for other services"),
            (
                &self.executors,
                "the executor is listening for other services",
            ),
        ] {
            if let Some(listener) = listener {
                tracing::info!(address = %listener.local_addr()?, "{what}");
            }
        }
        let executor = match role {
            Role::Api => None,
            Role::All | Role::Executor => {
                Some(swarm::start_executor(&app.swarms, &mut self.internal).await?)
            }
        };
        let admin = app.config.admin_socket_path();
        let listeners = Listeners {
            public: self.public,
            internal: self.internal,
            executor: self.executors,
            admin: admin.as_deref().map(AdminSocket::bind).transpose()?,
        };
        Ok((listeners, executor))
    }
}

/// Reloads the configuration at each SIGHUP, and applies the settings that need no restart.
async fn take_up_changes(app: App, mut hangup: Signal, file: Option<PathBuf>, started_with: Dict) {
    while hangup.recv().await.is_some() {
        let taken_up = take_up(&app, file.as_deref(), &started_with).await;
        if let Err(error) = taken_up {
            app.metrics.reload_failed.set(1);
            tracing::error!(
                "the new configuration is invalid, and the previous one stays active: {error:#}"
            );
        }
    }
}

async fn take_up(app: &App, file: Option<&Path>, started_with: &Dict) -> anyhow::Result<()> {
    let changed = app.take_up(Config::load(file)?).await?;
    // Before the line: its reader may look at the metric at once.
    app.metrics.reload_failed.set(0);
    tracing::info!(
        models = app.catalog.load().models().count(),
        added = changed.added.join(", "),
        removed = changed.removed.join(", "),
        changed = changed.changed.join(", "),
        "reloaded the configuration of the catalog"
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
            "these settings have changed since the start, and take effect at the next start"
        );
    }
    Ok(())
}

/// Prints a working example request, with a key that is the same in every run.
async fn greet(app: &App, address: SocketAddr) -> anyhow::Result<()> {
    let key = weir_identity::development_key(&app.identity, DEVELOPMENT_USER)
        .await
        .context("making a key for development mode")?;
    // Development users pay nothing, and only paid plans have swarms.
    let user = AccountId(DEVELOPMENT_USER.to_owned());
    let account = database::at_start(|| app.ledger.find_account(&user)).await?;
    if account.is_none_or(|account| account.plan == Plan::Free) {
        let granted = users::grant_month(app, DEVELOPMENT_USER, Plan::Pro).await;
        granted.map_err(|error| {
            anyhow::anyhow!("putting {DEVELOPMENT_USER} on a plan: {}", error.message())
        })?;
    }
    let catalog = app.catalog.load();
    let model = catalog.model("demo").map(|model| &*model.id);
    let Some(model) = model.or_else(|| catalog.models().next().map(|model| &*model.id)) else {
        say(format!(
            "weir is in development mode at http://{address}; its catalog is empty.\n"
        ));
        return Ok(());
    };
    say(format!(
        "weir is in development mode: it serves only this machine. Try it:\n\n  \
         curl http://{address}/v1/chat/completions -H 'Authorization: Bearer {key}' \
         -H 'Content-Type: application/json' \
         -d '{{\"model\":\"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello, weir!\"}}]}}'\n\n  \
         {program} swarm run --url http://{address} --template 'Content Pipeline'\n\n  \
         http://{address}/console\n\n",
        key = key.expose(),
        program = program(),
    ));
    Ok(())
}

/// Prints the greeting by a thread of its own, and ignores errors: a gateway needs no reader. A reader that stops reading
/// must not delay the gateway, nor its end, which would wait for the standard library's lock of standard output.
fn say(text: String) {
    let Ok(output) = std::io::stdout().as_fd().try_clone_to_owned() else {
        return;
    };
    let mut output = File::from(output);
    let thread = thread::Builder::new().name("weir-greeting".to_owned());
    let _ = thread.spawn(move || output.write_all(text.as_bytes()));
}
