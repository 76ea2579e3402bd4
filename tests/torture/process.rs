//! `Node`: `weir serve` as a separate process, which can be killed and started again; and `Providers`, its upstreams.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tests::gateway::share_compiled_plugins;
use tests::program::{build_weir, own_kib};
use tests::{Client, Reply, Upstream, chat};
use weir_storage::secrets::{SecretKey, SecretUrl};

use crate::kinds;
use crate::money::{Books, ORGANISATION, USER};

/// Ports for nodes: below the kernel's client ports, which could take a port while its node is down.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A node, running or not. Its port and its folder stay; killed when dropped.
pub(crate) struct Node {
    stores: Stores,
    tables: String,
    database: SecretUrl,
    address: SocketAddr,
    folder: TempDir,
    child: Option<Child>,
    /// The binary, unless it is the one in the profile of this program.
    program: Option<PathBuf>,
    is_dev: bool,
    role: Role,
}

/// The role of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    All,
    /// The API alone, with its port for other services.
    Api(SocketAddr),
    /// An executor alone, with that port of its API.
    Executor(SocketAddr),
}

/// The stores of nodes: SQLite and memory by default.
#[derive(Clone, Default)]
pub(crate) struct Stores {
    pub postgres: Option<SecretUrl>,
    pub redis: Option<SecretUrl>,
}

/// Providers: `plain` sends complete responses, `stream` sends streamed ones, each for a model of its name. The third
/// serves all kinds of requests besides chats.
pub(crate) struct Providers {
    pub plain: Upstream,
    pub stream: Upstream,
    kinds: Upstream,
}

impl Node {
    /// A node before its first start, with these tables in its configuration.
    pub(crate) fn new(stores: &Stores, tables: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let file = folder.path().join(".weir/weir.db");
        let sqlite = SecretUrl::new(format!("sqlite:{}", file.display()));
        let database = stores.postgres.clone().unwrap_or(sqlite);
        let mut toml = format!("listen = \"{address}\"\ndev = true\n");
        for (setting, url) in [
            ("database_url", &stores.postgres),
            ("redis_url", &stores.redis),
        ] {
            if let Some(url) = url {
                toml.push_str(&format!("{setting} = {:?}\n", url.expose()));
            }
        }
        toml.push_str(tables);
        fs::write(folder.path().join("weir.toml"), toml).expect("the folder can be written");
        Self {
            stores: stores.clone(),
            tables: tables.to_owned(),
            database,
            address,
            folder,
            child: None,
            program: None,
            is_dev: true,
            role: Role::All,
        }
    }

    /// The node with another binary.
    pub(crate) fn with_program(mut self, program: &Path) -> Self {
        self.program = Some(program.to_owned());
        self
    }

    /// The node as an API alone, which has [executors](Self::executor) beside it.
    pub(crate) fn into_api(mut self) -> Self {
        self.role = Role::Api(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())));
        self
    }

    /// Gives the node all roles from its next start on.
    pub(crate) fn take_all_roles(&mut self) {
        self.role = Role::All;
    }

    /// An executor alone, which calls this API.
    pub(crate) fn executor(&self) -> Self {
        let Role::Api(api) = self.role else {
            panic!("it is no API alone");
        };
        let mut twin = self.twin();
        twin.role = Role::Executor(api);
        twin
    }

    /// Uses the compiled code of earlier tests: compilation is not under test.
    pub(crate) fn with_compiled_plugins(self) -> Self {
        share_compiled_plugins(&self.data_dir());
        self
    }

    /// A node in production mode with default limits, which trusts this machine as a proxy.
    pub(crate) fn in_production(tables: &str) -> Self {
        let mut node = Self::new(&Stores::default(), tables);
        node.is_dev = false;
        let file = node.folder.path().join("weir.toml");
        let toml = fs::read_to_string(&file).expect("it was written");
        let settings = "dev = false\ntrusted_proxies = [\"127.0.0.0/8\"]\n";
        let toml = toml.replacen("dev = true\n", settings, 1);
        fs::write(&file, toml).expect("the folder can be written");
        node
    }

    /// Returns the size of its log in bytes.
    pub(crate) fn log_bytes(&self) -> u64 {
        fs::metadata(self.log()).expect("it was started").len()
    }

    /// Returns the size of its data folder in bytes.
    pub(crate) fn data_bytes(&self) -> u64 {
        let mut folders = vec![self.folder.path().join(".weir")];
        let mut bytes = 0;
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder").flatten() {
                match entry.metadata() {
                    Ok(found) if found.is_dir() => folders.push(entry.path()),
                    Ok(found) => bytes += found.len(),
                    // The file was removed meanwhile.
                    Err(_) => {}
                }
            }
        }
        bytes
    }

    /// Returns the URL of its database, for reads beside the node.
    pub(crate) fn database_url(&self) -> &SecretUrl {
        &self.database
    }

    /// Another node with the same settings and keys, as in one deployment.
    pub(crate) fn twin(&self) -> Self {
        let mut twin = Self::new(&self.stores, &self.tables);
        twin.program = self.program.clone();
        let keys = Path::new(".weir/keys");
        for folder in [Path::new(".weir"), keys] {
            weir_storage::secrets::create_private_folder(&twin.folder.path().join(folder))
                .expect("the folder can be written");
        }
        for secret in ["api-key-pepper", "sealing", "dev-issuer"] {
            let own = self.folder.path().join(keys).join(secret);
            // A key that was not needed yet is created now.
            SecretKey::load_or_create(&own).expect("the folder can be written");
            fs::copy(own, twin.folder.path().join(keys).join(secret)).expect("it was made");
        }
        twin
    }

    /// Returns its address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its ledger, for reads beside the node.
    pub(crate) async fn books(&self) -> Books {
        Books::open(&self.database).await
    }

    /// Returns its data folder, and creates it if absent.
    pub(crate) fn data_dir(&self) -> PathBuf {
        let folder = self.folder.path().join(".weir");
        weir_storage::secrets::create_private_folder(&folder).expect("the folder can be written");
        folder
    }

    /// Starts the node; returns when it listens.
    pub(crate) fn start(&mut self) {
        self.spawn(self.weir());
    }

    /// Starts the node with a clock offset, such as `+40s`, by Debian's `faketime`. Its monotonic clock stays
    /// unchanged.
    pub(crate) fn start_with_clock(&mut self, off: &str) {
        let mut weir = self.weir();
        let library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
        assert!(
            Path::new(library).exists(),
            "Debian's package faketime is installed"
        );
        weir.env("LD_PRELOAD", library)
            .env("FAKETIME", off)
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        self.spawn(weir);
    }

    fn spawn(&mut self, mut weir: Command) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .expect("the folder can be written");
        let mut child = weir
            .args(["serve", "--role"])
            .arg(match self.role {
                Role::All => "all",
                Role::Api(_) => "api",
                Role::Executor(_) => "executor",
            })
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("weir runs");
        if !self.is_dev || matches!(self.role, Role::Executor(_)) {
            while !self.is_started() {
                let ended = child.try_wait().expect("it can be waited for");
                assert!(ended.is_none(), "it ended: {}", self.read_log());
                std::thread::sleep(Duration::from_millis(10));
            }
            self.child = Some(child);
            return;
        }
        let mut greeting = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("curl ") {
            line.clear();
            let read = greeting.read_line(&mut line).expect("text");
            assert!(read > 0, "it ended: {}", self.read_log());
        }
        self.child = Some(child);
    }

    /// Returns whether it listens and responds. While weir loads plugins, its port is open and sends 503.
    fn is_started(&self) -> bool {
        let Ok(mut socket) = TcpStream::connect(self.address) else {
            return false;
        };
        let mut response = String::new();
        let request = "GET /models HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n";
        let read = socket
            .write_all(request.as_bytes())
            .and_then(|()| socket.read_to_string(&mut response));
        read.is_ok() && !response.starts_with("HTTP/1.1 503")
    }

    /// Kills the node with SIGKILL; returns after its end.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child
                .kill()
                .and_then(|()| child.wait().map(drop))
                .expect("it can be killed");
        }
    }

    /// Sends a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.as_ref().expect("it runs").id().to_string();
        let signalled = Command::new("kill")
            .args([&format!("-{name}"), &id])
            .status()
            .expect("kill runs");
        assert!(signalled.success());
    }

    /// Waits for the node's own end, and returns whether it succeeded; `None` after the limit.
    pub(crate) async fn ended_within(&mut self, limit: Duration) -> Option<bool> {
        let until = Instant::now() + limit;
        let child = self.child.as_mut().expect("it runs");
        while Instant::now() < until {
            if let Some(status) = child.try_wait().expect("it can be waited for") {
                return Some(status.success());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        None
    }

    /// Runs a command of `weir` and returns its output and its success. Commands about keys and users reach the
    /// running node, or its database before the start.
    pub(crate) fn run(&self, arguments: &[&str]) -> (String, bool) {
        let mut weir = self.weir();
        weir.args(arguments);
        if self.child.is_none() && matches!(arguments[0], "key" | "user") {
            weir.arg("--offline");
        }
        let output = weir.output().expect("weir runs");
        if !output.status.success() {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        }
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        (text, output.status.success())
    }

    /// Creates [`USER`] with these credits beside those of the plan `free`, and a client with a key.
    pub(crate) fn client(&self, credits: &str) -> Client {
        self.client_of(USER, credits)
    }

    /// Creates [`ORGANISATION`] with these credits, and a client with a member's key. Each request counts for budgets of
    /// all parts of the organisation, which none reaches.
    pub(crate) async fn member_client(&self, credits: &str) -> Client {
        let client = self.member(USER).await;
        let topped_up = self.run(&[
            "user",
            "top-up",
            "--user",
            ORGANISATION,
            "--credits",
            credits,
        ]);
        assert!(topped_up.1, "credits are given");
        let books = self.books().await;
        books.set_budgets(USER).await;
        books.close().await;
        client
    }

    /// Creates a client with a key of a member of [`ORGANISATION`], which may have no credits.
    pub(crate) async fn member(&self, user: &str) -> Client {
        let (key, made) = self.run(&["key", "create", "--user", user]);
        assert!(made, "a key is made");
        let books = self.books().await;
        books.hire(user).await;
        books.close().await;
        Client::new(self.address).with_key(&key)
    }

    /// Creates another user with these credits, and a client with a key.
    pub(crate) fn client_of(&self, user: &str, credits: &str) -> Client {
        let (key, made) = self.run(&["key", "create", "--user", user]);
        assert!(made, "a key is made");
        let (_, topped_up) = self.run(&["user", "top-up", "--user", user, "--credits", credits]);
        assert!(topped_up, "credits are given");
        Client::new(self.address).with_key(&key)
    }

    /// A client that may change its slots.
    pub(crate) fn operator(&self) -> Client {
        let (header, minted) = self.run(&["token", "service", "--scope", "plugins:write"]);
        assert!(minted, "a token is minted");
        let token = header
            .trim_start_matches("-H 'Authorization: Bearer ")
            .trim_end_matches('\'');
        Client::new(self.address).with_key(token)
    }

    /// Returns the id of its process.
    pub(crate) fn process_id(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Returns its resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> usize {
        crate::resident_kib(&self.process_id().to_string())
    }

    /// Returns its own memory in KiB.
    pub(crate) fn own_kib(&self) -> usize {
        own_kib(&self.process_id().to_string())
    }

    /// Returns its open descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        let id = self.child.as_ref().expect("it runs").id();
        let open = fs::read_dir(format!("/proc/{id}/fd"));
        open.expect("Linux has it").count()
    }

    /// Returns whether `weir ledger verify` finds no fault.
    pub(crate) fn is_sound(&self) -> bool {
        let (findings, sound) = self.run(&["ledger", "verify"]);
        if !sound {
            println!("{findings}");
        }
        sound
    }

    /// Counts panics of its threads since its first start.
    pub(crate) fn panics(&self) -> usize {
        self.logged("panicked at")
    }

    /// Counts this text in its log since its first start.
    pub(crate) fn logged(&self, text: &str) -> usize {
        self.read_log().matches(text).count()
    }

    fn read_log(&self) -> String {
        fs::read_to_string(self.log()).expect("it was started")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn weir(&self) -> Command {
        let mut command = Command::new(self.program.as_ref().unwrap_or_else(|| &BINARY));
        // A developer's environment must not change the test.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WEIR_")) {
            command.env_remove(name);
        }
        command.current_dir(self.folder.path());
        // Commands of other tests must not find this gateway.
        command.env("XDG_STATE_HOME", self.folder.path());
        match self.role {
            Role::All => {}
            Role::Api(internal) => {
                command.env("WEIR_INTERNAL_LISTEN", internal.to_string());
            }
            Role::Executor(api) => {
                command.env("WEIR_SWARMS__API_URL", format!("http://{api}"));
                command.env("WEIR_SWARMS__LISTEN", self.address.to_string());
            }
        }
        command
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Providers {
    /// Starts them. The first two have the same response: this many tokens of input, and a token of output for each text.
    pub(crate) async fn start(plain: Reply, stream: Reply) -> Self {
        let providers = Self {
            plain: Upstream::start().await,
            stream: Upstream::start().await,
            kinds: Upstream::start().await,
        };
        providers.plain.always(plain);
        providers.stream.always(stream);
        kinds::serve(&providers.kinds);
        providers
    }

    /// Returns the number of requests to them.
    pub(crate) fn calls(&self) -> usize {
        self.plain.count() + self.stream.count() + self.kinds.count()
    }

    /// Returns the tables of a configuration with them, with rates and shares that no test exceeds.
    pub(crate) fn tables(&self) -> String {
        format!(
            "[rate_limits]\nfree = 1000000\naddress = 1000000\n\
             [limits]\nrequests_per_account = {{ free = 1000000 }}\nrequests_per_upstream = 1000000\n\
             requests_per_slot = 1000000\n{}{}{}",
            provider("plain", &self.plain),
            provider("stream", &self.stream),
            kinds::tables(&self.kinds)
        )
    }
}

/// Returns the tables of a provider and of a model of its name.
pub(crate) fn provider(name: &str, upstream: &Upstream) -> String {
    format!(
        "[providers.{name}]\nadapter = \"openai\"\nbase_url = \"{}\"\n{}",
        upstream.base_url(),
        crate::money::model(name)
    )
}

/// A request to one of [`Providers`].
pub(crate) fn request(stream: bool) -> Value {
    let mut request = chat(if stream { "stream" } else { "plain" }, crate::money::TEXT);
    request["stream"] = stream.into();
    request
}

/// The binary in the profile of this program, built once.
static BINARY: LazyLock<PathBuf> = LazyLock::new(|| {
    build_weir(match cfg!(debug_assertions) {
        true => "dev",
        false => "release",
    })
});

/// Returns the binaries to compare: those of `WEIR_TORTURE_BINARIES`, separated by colons, or the one in the profile of this
/// program.
pub(crate) fn binaries() -> Vec<PathBuf> {
    match std::env::var_os("WEIR_TORTURE_BINARIES") {
        Some(paths) => std::env::split_paths(&paths).collect(),
        None => vec![BINARY.clone()],
    }
}

fn free_port() -> u16 {
    // Each port is tried once: a node before its start owns one, too. Other processes of this program begin elsewhere.
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| {
        let first = std::process::id() % (PORTS.len() as u32 / 2);
        AtomicU16::new(PORTS.start + first as u16)
    });
    loop {
        let port = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(PORTS.contains(&port), "there is a free port");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// Waits for a condition and returns the duration; `None` after the limit.
pub(crate) async fn wait_until(
    limit: Duration,
    mut holds: impl AsyncFnMut() -> bool,
) -> Option<Duration> {
    let began = Instant::now();
    while !holds().await {
        if began.elapsed() > limit {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Some(began.elapsed())
}

/// Formats a duration for a line of figures.
pub(crate) fn shown(took: Option<Duration>) -> String {
    took.map_or_else(|| "never".to_owned(), |took| format!("{took:.0?}"))
}
