//! `Gateway`: a running weir on a free port, with real stores in a folder of its own.
//!
//! The gateway runs in the test's process, so that a test can add plugins that are not bundled and observe its tasks;
//! clients still use only sockets.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use weir::server::{self, AdminSocket, Listeners};
use weir_app::App;
use weir_app::config::Config;
use weir_bundled::BUNDLE;
use weir_identity::dev_issuer::{DevAudience, DevIssuer, SERVICE_EMAIL};
use weir_identity::store;
use weir_ledger::{AccountId, Action, Credits, LedgerStore, OperationId, TopUp};
use weir_plugins::bundled::BundledComponent;
use weir_plugins::progress::CompileProgress;
use weir_request::listen_address::ListenAddress;
use weir_sandbox::Digest;
use weir_sandbox::compiler::Compiler;
use weir_storage::Database;
use weir_storage::clock::{Clock, ManualClock, Millis};
use weir_storage::database::is_outage;
use weir_storage::secrets::{SecretUrl, create_private_folder};
use weir_swarms::swarm::executor::Executor;
use weir_swarms::swarm::{executor_at, start_executor};

use crate::client::{Answer, Client, EventStream, patiently};
use crate::stores::Postgres;
use crate::upstream::Upstream;

/// The gateway's credential for scripted upstreams.
pub const UPSTREAM_CREDENTIAL: &str = "sk-upstream-secret-0123456789";

/// The user whose key [`Gateway::client`] uses.
pub const USER: &str = "alice";

/// A running gateway. Stops when dropped; [`Gateway::stop`] waits for the drain.
pub struct Gateway {
    address: SocketAddr,
    internal: Option<SocketAddr>,
    key: String,
    app: App,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
    executor: Option<Executor>,
    executor_address: Option<SocketAddr>,
    folder: TempDir,
}

/// The settings of a gateway before its start.
pub struct Builder {
    folder: TempDir,
    settings: String,
    tables: String,
    plugins: Vec<BundledComponent>,
    clock: Clock,
    credits: u32,
    swarms: bool,
    program: Option<PathBuf>,
}

impl Gateway {
    /// A gateway with the demo provider only.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// A gateway whose model `scripted` is served by an upstream through the `openai` adapter.
    pub async fn with_upstream(upstream: &Upstream) -> Self {
        Self::with_adapter("openai", upstream).await
    }

    /// The gateway of [`Self::with_upstream`], with another adapter.
    pub async fn with_adapter(adapter: &str, upstream: &Upstream) -> Self {
        let builder = Self::builder().provider("scripted", adapter, Some(upstream));
        builder.model("scripted", &["scripted"]).start().await
    }

    /// Returns the settings of a gateway before its start.
    pub fn builder() -> Builder {
        Builder {
            folder: tempfile::tempdir().expect("a temporary folder can be made"),
            settings: String::new(),
            tables: String::new(),
            plugins: BUNDLE.plugins(),
            clock: Clock::System,
            credits: 1_000_000,
            swarms: false,
            program: None,
        }
    }

    /// A client with a valid key.
    pub fn client(&self) -> Client {
        Client::new(self.address).with_key(&self.key)
    }

    /// A client without credentials.
    pub fn stranger(&self) -> Client {
        Client::new(self.address)
    }

    /// A client with both tokens of a web user, as the local issuer mints them.
    pub fn web(&self, user: &str) -> Client {
        let tokens = self
            .issuer()
            .web_tokens(user, self.app.clock.now())
            .expect("tokens can be minted");
        self.stranger()
            .with_key(tokens.identity.expose())
            .with_header("x-identity-appcheck", tokens.attestation.expose())
    }

    /// Returns the id of a web user, and creates the user if absent.
    pub async fn web_user_id(&self, user: &str) -> String {
        let issuer = DevIssuer::settings(DevAudience::Identity).issuer;
        let (database, now) = (&self.app.database, self.app.clock.now());
        let user = store::find_or_create_web_user(database, &issuer, user, now);
        user.await.expect("the database answers").id
    }

    /// A client with both tokens of a web user who is an administrator.
    pub async fn admin(&self, user: &str) -> Client {
        let id = self.web_user_id(user).await;
        let (database, now) = (&self.app.database, self.app.clock.now());
        let granted = store::grant_admin(database, &id, now).await;
        assert!(granted.expect("the database answers"), "there is no {id}");
        self.web(user)
    }

    /// A client at the internal port with a token of the local issuer with these scopes.
    pub fn service(&self, scopes: &[&str]) -> Client {
        let token = self
            .issuer()
            .service_token(
                DevAudience::Api,
                SERVICE_EMAIL,
                scopes,
                self.app.clock.now(),
            )
            .expect("a token can be minted");
        self.internal().with_key(token.expose())
    }

    /// A client at the executor's port with a token of the local issuer with these scopes.
    pub fn executor_service(&self, audience: DevAudience, scopes: &[&str]) -> Client {
        let now = self.app.clock.now();
        let token = self
            .issuer()
            .service_token(audience, SERVICE_EMAIL, scopes, now);
        let token = token.expect("a token can be minted");
        let address = self.executor_address.expect("it runs swarms");
        Client::new(address).with_key(token.expose())
    }

    /// The executor that was started with the gateway.
    pub fn executor(&self) -> &Executor {
        self.executor.as_ref().expect("it runs swarms")
    }

    /// Starts another executor beside the first, which calls the same API.
    pub fn another_executor(&self) -> Executor {
        let url = format!("http://{}", self.internal().address());
        executor_at(&self.app.swarms, &url).expect("a client can be made")
    }

    /// Puts the gateway's user on a plan, until the end of the month.
    pub async fn set_plan(&self, plan: &str) {
        let admin = self.admin("root").await;
        let path = format!("/admin/users/{USER}/plan");
        let set = admin.post(&path, &json!({ "plan": plan })).await;
        assert_eq!(set.status, 200, "{}", set.text());
    }

    /// A client at the internal port without credentials.
    pub fn internal(&self) -> Client {
        Client::new(self.internal.expect("`internal_listen` is set"))
    }

    /// A new API key of a web user.
    pub async fn web_key(&self, user: &str) -> String {
        let made = self.web(user).post("/api-keys", &json!({})).await;
        let key = made.json()["api_key"].as_str().map(str::to_owned);
        key.expect("a key")
    }

    /// An API key of a user that expired a day ago: keys are valid for 90 days.
    pub async fn expired_key(&self, user: &str) -> String {
        let made_at = Millis(self.app.clock.now().0 - 91 * 86_400_000);
        let (database, peppers) = (&self.app.database, &self.app.identity.key_peppers);
        let key = store::create_key(database, peppers, user, "old", false, None, made_at).await;
        key.expect("a key").expose().to_owned()
    }

    /// The local issuer.
    pub fn issuer(&self) -> DevIssuer {
        self.app
            .config
            .dev_issuer()
            .expect("the issuer's key can be read")
            .expect("development mode has an issuer")
    }

    /// Sends a chat request, and reads the complete response.
    pub async fn chat(&self, model: &str, text: &str) -> Answer {
        self.client().post("/chat", &chat(model, text)).await
    }

    /// Sends a chat request, and reads the response as it arrives.
    pub async fn stream(&self, model: &str, text: &str) -> EventStream {
        self.client().stream("/chat", &chat(model, text)).await
    }

    /// The gateway's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A valid key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The state that its requests share.
    pub fn app(&self) -> &App {
        &self.app
    }

    /// The database, whose accounts show what the gateway has answered.
    pub async fn folded_database(&self) -> &Database {
        let database = &self.app.database;
        let store = LedgerStore::new(database.clone());
        store.fold_for_reader(None).await;
        database
    }

    /// The folder with its data.
    pub fn data_dir(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    /// Stops the gateway as a signal would, waits for the drain, and returns its folder.
    pub async fn stop(mut self) -> TempDir {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        self.served.await.expect("serving does not panic");
        self.folder
    }
}

impl Builder {
    /// Uses a PostgreSQL.
    #[must_use]
    pub fn postgres(self, url: &SecretUrl) -> Self {
        let url = url.expose();
        self.settings(&format!("database_url = {url:?}"))
            .explicitly_dev()
    }

    /// Uses a Redis.
    #[must_use]
    pub fn redis(self, url: &SecretUrl) -> Self {
        let url = url.expose();
        self.settings(&format!("redis_url = {url:?}"))
            .explicitly_dev()
    }

    fn explicitly_dev(self) -> Self {
        if self.settings.contains("dev = ") {
            return self;
        }
        self.settings("dev = true")
    }

    /// Sets the credits of the gateway's user beside those of the plan `free`. Default: a million.
    #[must_use]
    pub fn credits(mut self, credits: u32) -> Self {
        self.credits = credits;
        self
    }

    /// Runs another program for children instead of weir.
    #[must_use]
    pub fn program(mut self, program: &Path) -> Self {
        self.program = Some(program.to_owned());
        self
    }

    /// Uses another clock, which is also its database's.
    #[must_use]
    pub fn clock(mut self, clock: &ManualClock) -> Self {
        self.clock = Clock::Manual(clock.clone());
        self
    }

    /// Uses a clock with this offset in milliseconds, as the only process on that machine.
    #[must_use]
    pub fn clock_off_by(mut self, ms: i64) -> Self {
        self.clock = Clock::Off(ms);
        self
    }

    /// Enables swarms.
    #[must_use]
    pub fn swarms(mut self) -> Self {
        self.swarms = true;
        self
    }

    /// Uses the folder of a stopped gateway.
    #[must_use]
    pub fn folder(mut self, folder: TempDir) -> Self {
        self.folder = folder;
        self
    }

    /// Adds top-level settings, as lines of TOML.
    #[must_use]
    pub fn settings(mut self, toml: &str) -> Self {
        self.settings.push_str(toml);
        self.settings.push('\n');
        self
    }

    /// Adds tables, as TOML that begins with a header.
    #[must_use]
    pub fn tables(mut self, toml: &str) -> Self {
        self.tables.push_str(toml);
        self.tables.push('\n');
        self
    }

    /// Adds a provider and a model of this name that the `openai` adapter serves from an upstream.
    #[must_use]
    pub fn upstream(self, name: &str, upstream: &Upstream) -> Self {
        self.provider(name, "openai", Some(upstream))
            .model(name, &[name])
    }

    /// Adds a plugin, and a provider and a model of its name.
    #[must_use]
    pub fn guest(mut self, name: &str, component: &[u8], upstream: Option<&Upstream>) -> Self {
        self.plugins.push(BundledComponent {
            name: name.to_owned().into(),
            bytes: component.to_vec().into(),
        });
        self.provider(name, name, upstream).model(name, &[name])
    }

    /// Adds a tool or a filter to the bundled ones.
    #[must_use]
    pub fn plugin(mut self, name: &str, component: &[u8]) -> Self {
        self.plugins.push(BundledComponent {
            name: name.to_owned().into(),
            bytes: component.to_vec().into(),
        });
        self
    }

    /// Adds a provider. Without an upstream, its base URL is unreachable.
    #[must_use]
    pub fn provider(mut self, name: &str, adapter: &str, upstream: Option<&Upstream>) -> Self {
        let _ = write!(self.tables, "[providers.{name}]\nadapter = {adapter:?}\n");
        if let Some(upstream) = upstream {
            let credential = self.folder.path().join("credential");
            std::fs::write(&credential, UPSTREAM_CREDENTIAL).expect("the folder can be written");
            let _ = write!(
                self.tables,
                "base_url = \"{}\"\ncredential = {{ file = {credential:?} }}\n",
                upstream.base_url(),
            );
        } else if adapter != "demo" {
            self.tables.push_str("base_url = \"http://127.0.0.1:9\"\n");
        }
        self
    }

    /// Adds a model that these providers serve, in this order.
    #[must_use]
    pub fn model(mut self, id: &str, providers: &[&str]) -> Self {
        let upstreams: String = providers
            .iter()
            .map(|provider| format!("{{ provider = {provider:?} }},"))
            .collect();
        let _ = write!(
            self.tables,
            "[models.{id}]\ncontext_window = 8000000\nmax_output_tokens = 4000000\n\
             default_output_tokens = 1000\nmax_image_tokens = 100\nsupports_tools = true\n\
             supports_vision = true\nupstreams = [{upstreams}]\nprice = {{ input = 1, output = 2 }}\n",
        );
        self
    }

    /// Shares the keys and tokens of another gateway, as nodes of one deployment do.
    #[must_use]
    pub fn sharing_secrets_of(self, other: &Gateway) -> Self {
        let keys = self.folder.path().join("data/keys");
        create_private_folder(&keys).expect("the folder can be written");
        for secret in [
            "api-key-pepper",
            "dev-issuer",
            "payment-webhooks",
            "sealing",
        ] {
            let from = other.data_dir().join("keys").join(secret);
            if from.exists() {
                std::fs::copy(from, keys.join(secret)).expect("the folder can be written");
            }
        }
        self
    }

    /// Uses the default time limits of stores, in a test that stops one.
    #[must_use]
    pub fn impatient(self) -> Self {
        self.tables("[stores]\n")
    }

    /// Uses the default time limit of Redis, in a test that stops it. A slow database is no outage.
    #[must_use]
    pub fn impatient_with_redis(self) -> Self {
        self.tables("[stores]\nacquire_ms = 30000\nstatement_ms = 30000\n")
    }

    /// Returns the configuration of these settings.
    pub fn config(&self) -> Config {
        // Tests send more requests than people; tests of rate limits set their own.
        let rates = if self.tables.contains("[rate_limits]") {
            ""
        } else {
            "[rate_limits]\nfree = 1000000\naddress = 1000000\n"
        };
        // Some tests make guests trap often on purpose; tests of quarantine set their own limit.
        let quarantine = if self.tables.contains("quarantine_traps") {
            ""
        } else {
            "[plugins]\nquarantine_traps = 0\n"
        };
        // A machine that is busy with other tests must not count as an outage.
        let stores = if self.tables.contains("[stores]") {
            ""
        } else {
            "[stores]\nacquire_ms = 30000\nstatement_ms = 30000\ncache_ms = 30000\n"
        };
        // Outside development, the provider exists only if configured.
        let is_named = self.tables.contains("[providers.demo]");
        let demo = match self.settings.contains("dev = false") && !is_named {
            true => "[providers.demo]\nadapter = \"demo\"\n",
            false => "",
        };
        let toml = format!(
            "listen = \"127.0.0.1:0\"\ndata_dir = {:?}\n{}\n{}\n{rates}{quarantine}{stores}{demo}",
            self.folder.path().join("data"),
            self.settings,
            self.tables
        );
        let mut config =
            Config::from_toml(&toml).unwrap_or_else(|error| panic!("{error:#}\n{toml}"));
        // No load balancer needs time to notice a stop.
        config.limits.connections.drain_delay_ms.get_or_insert(0);
        // One user sends as many requests as many users do; tests of shares set their own.
        let shares = &mut config.limits.admission;
        if !self.tables.contains("requests_per_account") {
            shares.requests_per_account.free = NonZeroU32::MAX;
        }
        let are_set = [
            "concurrent_requests",
            "requests_per_upstream",
            "requests_per_slot",
        ];
        if !are_set.iter().any(|set| self.tables.contains(set)) {
            shares.requests_per_upstream = Some(NonZeroU32::MAX);
            shares.requests_per_slot = Some(NonZeroU32::MAX);
        }
        config
    }

    /// Starts the gateway.
    pub async fn start(self) -> Gateway {
        self.try_start()
            .await
            .unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Starts the gateway, and returns the error of a failed start.
    pub async fn try_start(self) -> anyhow::Result<Gateway> {
        share_compiled_plugins(&self.folder.path().join("data"));
        let config = self.config();
        // This process is not a weir binary, but runs one to compile installed components.
        let program = self.program.clone().unwrap_or_else(weir_program);
        let compiler = Compiler::with_program(program, config.plugins.compile.clone());
        let (clock, progress) = (self.clock.clone(), CompileProgress::default());
        let app = Box::pin(App::start_with(
            config,
            &self.plugins,
            clock,
            compiler,
            None,
            &progress,
        ))
        .await?;
        let key = patiently(async {
            loop {
                let (database, now) = (&app.database, app.clock.now());
                let made = store::create_key(
                    database,
                    &app.identity.key_peppers,
                    USER,
                    "test",
                    false,
                    None,
                    now,
                );
                match made.await {
                    Ok(key) => break key,
                    // A gateway with short time limits fails at its start as well.
                    Err(error) if is_outage(&error) => tokio::task::yield_now().await,
                    Err(error) => panic!("a key can be made: {error}"),
                }
            }
        })
        .await;
        if self.credits > 0 {
            top_up(&app, USER, Credits::whole(self.credits)).await;
        }
        let (public, address) = listen(&app.config.listen).await;
        let (mut internal, mut internal_address) = match &app.config.internal_listen {
            Some(address) => {
                let (listener, address) = listen(address).await;
                (Some(listener), Some(address))
            }
            None => (None, None),
        };
        let mut executor = None;
        let (mut executors, mut executor_address) = (None, None);
        if self.swarms {
            executor = Some(start_executor(&app.swarms, &mut internal).await?);
            let bound = internal.as_ref().map(TcpListener::local_addr).transpose()?;
            internal_address = internal_address.or(bound);
            let (listener, address) = listen(&app.config.listen).await;
            (executors, executor_address) = (Some(listener), Some(address));
        }
        let (stop, stopped) = oneshot::channel::<()>();
        let admin = app.config.admin_socket_path();
        let listeners = Listeners {
            public: Some(public),
            internal,
            executor: executors,
            admin: admin.as_deref().map(AdminSocket::bind).transpose()?,
        };
        let served = tokio::spawn(server::serve(
            app.clone(),
            listeners,
            executor.clone(),
            async {
                let _ = stopped.await;
            },
        ));
        Ok(Gateway {
            address,
            internal: internal_address,
            key: key.expose().to_owned(),
            app,
            stop: Some(stop),
            served,
            executor,
            executor_address,
            folder: self.folder,
        })
    }
}

/// The binary beside this test's own; `tests/run` builds it first.
pub fn weir_program() -> PathBuf {
    let program = std::env::current_exe().expect("a program has a path");
    let mut beside = program
        .ancestors()
        .skip(1)
        .map(|folder| folder.join("weir"));
    beside
        .find(|binary| binary.is_file())
        .expect("weir is built: run tests/run, or cargo build")
}

/// Runs a test on a gateway on SQLite and on one on PostgreSQL, each with a clock at this moment, in ISO 8601.
pub async fn on_each_database(
    moment: &str,
    configure: impl Fn(Builder) -> Builder,
    test: impl AsyncFn(Gateway, ManualClock),
) {
    let postgres = Postgres::shared().create_database().await;
    for on in [
        |builder: Builder, _: &_| builder,
        |builder: Builder, url: &_| builder.postgres(url),
    ] {
        let clock = ManualClock::at(at(moment));
        let builder = configure(Gateway::builder().clock(&clock));
        test(on(builder, &postgres).start().await, clock).await;
    }
}

/// A moment, in ISO 8601.
pub fn at(moment: &str) -> Millis {
    let moment: Timestamp = moment.parse().expect("ISO 8601");
    Millis(moment.as_millisecond())
}

/// Gives a user credits that do not lapse.
pub async fn top_up(app: &App, user: &str, credits: Credits) {
    let top_up = TopUp {
        id: OperationId(weir_storage::ids::operator_action_id()),
        credits,
        within: None,
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    let account = AccountId(user.to_owned());
    let done = app.ledger.submit(&account, Action::TopUp(top_up), deadline);
    done.await.expect("the ledger takes credits");
}

async fn listen(address: &ListenAddress) -> (TcpListener, SocketAddr) {
    let listener = address.bind().await;
    let listener = listener.expect("the loopback interface has a free port");
    let address = listener
        .local_addr()
        .expect("a bound socket has an address");
    (listener, address)
}

/// The folder of tests' compiled code.
const COMPILED_PLUGINS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/test-plugins");

/// Copies the compiled code of earlier tests into a gateway's own folder, except one component's.
pub fn copy_compiled_plugins(data: &Path, except: Option<&Digest>) {
    for folder in [data, &data.join("cache")] {
        create_private_folder(folder).expect("the folder can be written");
    }
    copy_compiled(&data.join("cache/plugins"), except);
}

/// Copies the compiled plugins of other tests to the cache that a user's gateways and commands share, except one.
pub fn copy_compiled_plugins_for_user(home: &Path, except: &Digest) {
    copy_compiled(&home.join(".cache/weir/bundled"), Some(except));
    write_cache_key(&home.join(".local/state/weir"), "plugin-cache.key");
}

fn copy_compiled(own: &Path, except: Option<&Digest>) {
    create_private_folder(own).expect("the folder can be written");
    let except = except.map(Digest::to_string);
    for file in std::fs::read_dir(COMPILED_PLUGINS).expect("some are compiled") {
        let file = file.expect("it can be read").path();
        let name = file.file_name().expect("a name").to_string_lossy();
        if name.ends_with(".cwasm")
            && !except
                .as_ref()
                .is_some_and(|except| name.starts_with(except))
        {
            std::fs::copy(&file, own.join(&*name)).expect("a copy");
        }
    }
}

/// Shares the compiled plugins of other tests: compilation takes longer than most tests. Tests of that cache use a
/// folder of their own.
pub fn share_compiled_plugins(data: &Path) {
    share_compiled(&data.join("cache"), &data.join("keys"), "plugin-cache");
}

/// Shares the compiled plugins of other tests with the commands of plugin authors, which use the user's home.
pub fn share_compiled_plugins_with_authors(home: &Path) {
    let data = home.join(".local/share/weir");
    share_compiled(&home.join(".cache/weir"), &data, "plugin-cache.key");
}

fn share_compiled(cache: &Path, keys: &Path, key: &str) {
    let shared = Path::new(COMPILED_PLUGINS);
    create_private_folder(shared).expect("the target folder can be written");
    for folder in [cache, keys] {
        create_private_folder(folder).expect("the folder can be written");
    }
    let shared = shared.canonicalize().expect("it exists");
    let link = cache.join("plugins");
    if !link.exists() {
        std::os::unix::fs::symlink(&shared, link).expect("a link can be made");
    }
    write_cache_key(keys, key);
}

fn write_cache_key(keys: &Path, name: &str) {
    create_private_folder(keys).expect("the folder can be written");
    let key = keys.join(name);
    std::fs::write(&key, [7; 32]).expect("the folder can be written");
    let owner_only = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&key, owner_only).expect("its owner may");
}

/// A chat request with one user message.
pub fn chat(model: &str, text: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": text }] })
}
