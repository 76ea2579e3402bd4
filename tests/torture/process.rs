//! `Node`: `weir serve` as a process of its own, which can be killed and started again; and `Providers`, what it asks.

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
use tests::program::build_weir;
use tests::{Client, Reply, Upstream, chat};
use weir_storage::secrets::{Key, SecretUrl};

use crate::money::{Books, USER};

/// Ports for nodes: below those that the kernel gives to clients, which could take one while its node is away.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A node, running or not. It keeps its port and its folder; killed when dropped.
pub(crate) struct Node {
    stores: Stores,
    tables: String,
    database: SecretUrl,
    address: SocketAddr,
    folder: TempDir,
    child: Option<Child>,
    is_dev: bool,
    role: Role,
}

/// What a node does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    All,
    /// The API alone, with its port for other services.
    Api(SocketAddr),
    /// An executor alone, with that port of its API.
    Executor(SocketAddr),
}

/// Where nodes keep what they know: SQLite and memory where nothing is named.
#[derive(Clone, Default)]
pub(crate) struct Stores {
    pub postgres: Option<SecretUrl>,
    pub redis: Option<SecretUrl>,
}

/// Two providers, each with a model of its name: `plain` has whole answers, `stream` has streamed ones.
pub(crate) struct Providers {
    pub plain: Upstream,
    pub stream: Upstream,
}

impl Node {
    /// A node that was never started, with these tables in its configuration.
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
            is_dev: true,
            role: Role::All,
        }
    }

    /// The same as an API alone, which has [executors](Self::executor) beside it.
    pub(crate) fn into_api(mut self) -> Self {
        self.role = Role::Api(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())));
        self
    }

    /// From its next start on, it is all again.
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

    /// Has it use what tests have compiled so far: what is compiled is not what it is about.
    pub(crate) fn with_compiled_plugins(self) -> Self {
        share_compiled_plugins(&self.data_dir());
        self
    }

    /// A node that serves others than this machine, by default limits, and believes this machine whom its requests come
    /// from.
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

    /// Bytes that its log has.
    pub(crate) fn log_bytes(&self) -> u64 {
        fs::metadata(self.log()).expect("it was started").len()
    }

    /// Bytes that its data folder has.
    pub(crate) fn data_bytes(&self) -> u64 {
        let mut folders = vec![self.folder.path().join(".weir")];
        let mut bytes = 0;
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder").flatten() {
                match entry.metadata() {
                    Ok(found) if found.is_dir() => folders.push(entry.path()),
                    Ok(found) => bytes += found.len(),
                    // Gone meanwhile.
                    Err(_) => {}
                }
            }
        }
        bytes
    }

    /// Its database, to be read beside it.
    pub(crate) fn database_url(&self) -> &SecretUrl {
        &self.database
    }

    /// Another node with the same settings that knows the keys of this one, as those of one deployment do.
    pub(crate) fn twin(&self) -> Self {
        let twin = Self::new(&self.stores, &self.tables);
        let keys = Path::new(".weir/keys");
        for folder in [Path::new(".weir"), keys] {
            weir_storage::secrets::create_private_folder(&twin.folder.path().join(folder))
                .expect("the folder can be written");
        }
        for secret in ["api-key-pepper", "sealing", "dev-issuer"] {
            let own = self.folder.path().join(keys).join(secret);
            // One that has not been needed yet is made now.
            Key::load_or_create(&own).expect("the folder can be written");
            fs::copy(own, twin.folder.path().join(keys).join(secret)).expect("it was made");
        }
        twin
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its ledger, read beside it.
    pub(crate) async fn books(&self) -> Books {
        Books::open(&self.database).await
    }

    /// The folder that it keeps its data in, which is made if it is not there.
    pub(crate) fn data_dir(&self) -> PathBuf {
        let folder = self.folder.path().join(".weir");
        weir_storage::secrets::create_private_folder(&folder).expect("the folder can be written");
        folder
    }

    /// Starts it; returns when it listens.
    pub(crate) fn start(&mut self) {
        self.spawn(self.weir());
    }

    /// The same on a machine whose clock is so far off, such as `+40s`: Debian's `faketime` says so. Its clock that
    /// nobody sets is left alone.
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

    /// Whether it listens and answers. While weir loads plugins, its port is open and answers 503.
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

    /// Kills it with SIGKILL; returns when it is gone.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child
                .kill()
                .and_then(|()| child.wait().map(drop))
                .expect("it can be killed");
        }
    }

    /// Sends it a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.as_ref().expect("it runs").id().to_string();
        let signalled = Command::new("kill")
            .args([&format!("-{name}"), &id])
            .status()
            .expect("kill runs");
        assert!(signalled.success());
    }

    /// Waits for it to end by itself, and whether it does so well; `None` if it has not by then.
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

    /// Runs a command of `weir` and returns its output, and whether it succeeded. Commands about keys and users reach the running
    /// node, or its database before it starts.
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

    /// Makes [`USER`] with so many credits beside those of the plan `free`, and a client with a key.
    pub(crate) fn client(&self, credits: &str) -> Client {
        self.client_of(USER, credits)
    }

    /// The same of another user.
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

    /// KiB of memory that it has in RAM.
    pub(crate) fn resident_kib(&self) -> usize {
        let id = self.child.as_ref().expect("it runs").id();
        crate::resident_kib(&id.to_string())
    }

    /// KiB of RAM that are its own: a page that it has mapped a hundred times, as those of a component's data are by its
    /// instances, counts once.
    pub(crate) fn own_kib(&self) -> usize {
        let id = self.child.as_ref().expect("it runs").id();
        let rollup = std::fs::read_to_string(format!("/proc/{id}/smaps_rollup"));
        let rollup = rollup.expect("Linux has it");
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.expect("it is there").parse().expect("a number")
    }

    /// Descriptors that it has open.
    pub(crate) fn descriptors(&self) -> usize {
        let id = self.child.as_ref().expect("it runs").id();
        let open = fs::read_dir(format!("/proc/{id}/fd"));
        open.expect("Linux has it").count()
    }

    /// Whether `weir ledger verify` finds nothing.
    pub(crate) fn is_sound(&self) -> bool {
        let (findings, sound) = self.run(&["ledger", "verify"]);
        if !sound {
            println!("{findings}");
        }
        sound
    }

    /// How often a thread of it has panicked since its first start.
    pub(crate) fn panics(&self) -> usize {
        self.logged("panicked at")
    }

    /// How often it has logged this since its first start.
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
        let mut command = Command::new(&*BINARY);
        // What a developer has set must not change what is tested.
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
    /// Both, with the same answer: so many tokens of input, and a token of output for each text.
    pub(crate) async fn start(plain: Reply, stream: Reply) -> Self {
        let providers = Self {
            plain: Upstream::start().await,
            stream: Upstream::start().await,
        };
        providers.plain.always(plain);
        providers.stream.always(stream);
        providers
    }

    /// How many requests have reached them.
    pub(crate) fn calls(&self) -> usize {
        self.plain.count() + self.stream.count()
    }

    /// The tables of a configuration that name them, and rates and shares that nobody exceeds.
    pub(crate) fn tables(&self) -> String {
        format!(
            "[rate_limits]\nfree = 1000000\naddress = 1000000\n\
             [limits]\nrequests_per_account = {{ free = 1000000 }}\nrequests_per_upstream = 1000000\n\
             requests_per_slot = 1000000\n{}{}",
            provider("plain", &self.plain),
            provider("stream", &self.stream)
        )
    }
}

/// The tables of a provider and of a model of its name.
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

/// Of the same profile as this program, built once.
static BINARY: LazyLock<PathBuf> = LazyLock::new(|| {
    build_weir(match cfg!(debug_assertions) {
        true => "dev",
        false => "release",
    })
});

fn free_port() -> u16 {
    // Each is looked at once: a node that is not started yet has one, too.
    static NEXT: AtomicU16 = AtomicU16::new(PORTS.start);
    loop {
        let port = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(PORTS.contains(&port), "there is a free port");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// Waits until a condition holds and says how long that took; `None` if it takes too long.
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

/// How long something took, for a line of figures.
pub(crate) fn shown(took: Option<Duration>) -> String {
    took.map_or_else(|| "never".to_owned(), |took| format!("{took:.0?}"))
}
