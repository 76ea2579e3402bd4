//! `Postgres` and `Redis`: private servers on free ports, in folders of their own.
//!
//! A small shell runs beside each server. It waits for the end of the tests' process, even by a crash, and then kills
//! the server and removes its folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use sqlx::{Connection, Executor};
use weir_storage::clock::{Clock, ManualClock};
use weir_storage::database::Timeouts;
use weir_storage::secrets::SecretUrl;
use weir_storage::{Cache, Database};

/// The password of both servers. No output may contain it.
pub const PASSWORD: &str = "store-secret-9876543210";

/// Time limit for the start of a server.
const PATIENCE: Duration = Duration::from_secs(30);

/// The shell's script. `$1` is the folder, the rest the server. Each line of standard input starts the server once
/// more; the response is its process id and its start time, since another process may get the id later.
const KEEPER: &str = r#"
folder=$1; shift
began() { cut -d' ' -f22 "/proc/$server/stat" 2>/dev/null; }
alive() { [ "$(began)" = "$since" ]; }
send() { alive && kill "$1" "$server" 2>/dev/null; }
server= since=none
while read -r _; do
  "$@" >>"$folder/log" 2>&1 </dev/null &
  server=$!
  since=$(began)
  echo "$server $since"
done
send -INT
send -CONT
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  alive || break
  sleep 0.1
done
send -KILL
wait
rm -rf "$folder"
"#;

/// An open database and cache.
pub struct Stores {
    /// The database, empty except for its schema.
    pub database: Database,
    /// The empty cache.
    pub cache: Cache,
    time: Option<ManualClock>,
    _guards: (Option<tempfile::TempDir>, Option<Redis>),
}

/// A PostgreSQL server. Stopped when dropped.
pub struct Postgres {
    server: Server,
}

/// A private authority for the certificates of servers.
pub struct Authority(tempfile::TempDir);

/// PgBouncer. Stopped when dropped.
pub struct Pooler {
    _server: Server,
}

/// A master with a replica under three Sentinels. Stopped when dropped.
pub struct Sentinels {
    servers: [Redis; 2],
    sentinels: [Redis; 3],
}

/// A Redis server, empty. Stopped when dropped.
pub struct Redis {
    server: Server,
}

/// The durability of PostgreSQL's commits in a failure of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Commits may be lost; tests are faster.
    Fast,
    /// Commits wait for the disk.
    Real,
}

/// Runs a test on SQLite and PostgreSQL, each with the cache in process and in Redis.
pub async fn each_combination(test: impl AsyncFn(&Stores)) {
    each_cache_beside(OnDatabase::Sqlite, &test).await;
    each_cache_beside(OnDatabase::Postgres, &test).await;
}

/// Runs a test on the cache in process and on the one in Redis.
pub async fn each_cache(test: impl AsyncFn(&Stores)) {
    each_cache_beside(OnDatabase::Sqlite, &test).await;
}

/// Runs a test on both databases.
pub async fn each_database(test: impl AsyncFn(&Stores)) {
    run(OnDatabase::Sqlite, OnCache::InProcess, &test).await;
    run(OnDatabase::Postgres, OnCache::InProcess, &test).await;
}

async fn each_cache_beside(database: OnDatabase, test: &impl AsyncFn(&Stores)) {
    run(database, OnCache::InProcess, test).await;
    run(database, OnCache::Redis, test).await;
}

#[expect(
    clippy::print_stderr,
    reason = "a test that fails says on which stores"
)]
async fn run(database: OnDatabase, cache: OnCache, test: &impl AsyncFn(&Stores)) {
    eprintln!("on {database:?} with the cache {cache:?}");
    let stores = Stores::open(database, cache).await;
    test(&stores).await;
    stores.database.close().await;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnDatabase {
    Sqlite,
    Postgres,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnCache {
    InProcess,
    Redis,
}

/// Opens a database with long time limits: a machine that is busy with other tests must not count as an outage.
pub async fn patient_database(url: &SecretUrl) -> Database {
    let patient = Timeouts {
        acquire: PATIENCE,
        statement: PATIENCE,
    };
    Database::open_with(url, patient)
        .await
        .unwrap_or_else(|error| panic!("{error:#}"))
}

impl Stores {
    async fn open(database: OnDatabase, cache: OnCache) -> Self {
        let (folder, url) = match database {
            OnDatabase::Sqlite => {
                let folder = tempfile::tempdir().expect("a temporary folder can be made");
                let url = format!("sqlite:{}", folder.path().join("weir.db").display());
                (Some(folder), SecretUrl::new(url))
            }
            OnDatabase::Postgres => (None, Postgres::shared().create_database().await),
        };
        let (redis, time) = match cache {
            OnCache::InProcess => (None, Some(ManualClock::default())),
            OnCache::Redis => (Some(Redis::start()), None),
        };
        let clock = time.clone().map_or(Clock::System, Clock::Manual);
        let redis_url = redis.as_ref().map(Redis::url);
        Self {
            database: patient_database(&url).await,
            cache: Cache::open(redis_url.as_ref(), &clock, PATIENCE)
                .await
                .unwrap_or_else(|error| panic!("{error:#}")),
            time,
            _guards: (folder, redis),
        }
    }

    /// Returns whether the cache uses real time.
    pub fn is_in_real_time(&self) -> bool {
        self.time.is_none()
    }

    /// Advances the cache's time: at once in process, in real time for Redis.
    pub async fn pass(&self, time: Duration) {
        match &self.time {
            Some(clock) => clock.advance(time),
            // Redis counts milliseconds, and a value lives through its last one.
            None => tokio::time::sleep(time + Duration::from_millis(20)).await,
        }
    }
}

impl Postgres {
    /// A server that all tests of this process share.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<Postgres> = LazyLock::new(|| Postgres::start(Durability::Fast));
        &SHARED
    }

    /// Starts a separate server.
    pub fn start(durability: Durability) -> Self {
        Self::serve(Self::init(), durability)
    }

    /// Starts a separate server that counts statements by the extension `pg_stat_statements`, in its database `postgres`. It
    /// waits for the disk, and for this much more at each flush of its WAL. For an hour, no checkpoint makes pages be written to
    /// the WAL again.
    pub async fn start_measured(flush_delay: Duration) -> Self {
        let folder = Self::init();
        let mut launcher = as_unprivileged(Path::new("env"));
        if flush_delay > Duration::ZERO {
            let library = compile_late_fsync(&folder);
            launcher
                .arg(format!("LD_PRELOAD={}", library.display()))
                .arg(format!("WEIR_LATE_FSYNC_US={}", flush_delay.as_micros()));
        }
        launcher.arg(postgres_binaries().join("postgres"));
        let settings = [
            "shared_preload_libraries=pg_stat_statements",
            "checkpoint_timeout=1h",
            "max_wal_size=8GB",
        ];
        let server = Self::launch(folder, Durability::Real, launcher, &settings);
        server.execute("CREATE EXTENSION pg_stat_statements").await;
        server
    }

    /// Makes the folder of an empty server.
    fn init() -> Folder {
        let folder = Folder::new();
        let binaries = postgres_binaries();
        let data = folder.0.join("data");
        let password = folder.write("password", PASSWORD);
        let made = as_unprivileged(&binaries.join("initdb"))
            .args([
                "--auth=scram-sha-256",
                "--username=weir",
                "--encoding=UTF8",
                "--no-locale",
            ])
            .arg("--no-sync")
            .arg("--pgdata")
            .arg(&data)
            .arg("--pwfile")
            .arg(&password)
            .output()
            .expect("initdb runs");
        assert!(made.status.success(), "initdb: {made:?}");
        folder
    }

    /// Starts a standby of this server, which follows it and accepts no writes.
    pub fn start_standby(&self) -> Self {
        let folder = Folder::new();
        let made = as_unprivileged(&postgres_binaries().join("pg_basebackup"))
            .args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync"])
            .arg("--pgdata")
            .arg(folder.0.join("data"))
            .arg("--dbname")
            .arg(self.url("postgres").expose())
            .output()
            .expect("pg_basebackup runs");
        assert!(made.status.success(), "pg_basebackup: {made:?}");
        // It has the primary's settings, and waits for no standby of its own once it is promoted.
        let settings = folder.0.join("data/postgresql.auto.conf");
        let mut settings = fs::File::options()
            .append(true)
            .open(settings)
            .expect("it is there");
        let is_set = writeln!(settings, "synchronous_standby_names = ''");
        is_set.expect("it can be written");
        Self::serve(folder, Durability::Fast)
    }

    fn serve(folder: Folder, durability: Durability) -> Self {
        let program = as_unprivileged(&postgres_binaries().join("postgres"));
        Self::launch(folder, durability, program, &[])
    }

    /// Starts a server by a command that ends with its program, with more settings than those of all servers.
    fn launch(
        folder: Folder,
        durability: Durability,
        mut command: Command,
        settings: &[&str],
    ) -> Self {
        let data = folder.0.join("data");
        let server = Server::start(folder, |_, port| {
            command.arg("-D").arg(&data);
            for setting in settings {
                command.args(["-c", setting]);
            }
            let fsync = if durability == Durability::Fast {
                "off"
            } else {
                "on"
            };
            for setting in [
                format!("port={port}"),
                "listen_addresses=127.0.0.1".to_owned(),
                "unix_socket_directories=".to_owned(),
                "max_connections=300".to_owned(),
                format!("fsync={fsync}"),
                format!("full_page_writes={fsync}"),
            ] {
                command.arg("-c").arg(setting);
            }
            command
        });
        let server = Self { server };
        server.wait();
        server
    }

    /// Creates an empty database and returns its URL.
    pub async fn create_database(&self) -> SecretUrl {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut operator = self.operator().await;
        operator
            .execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .await
            .expect("a database can be made");
        operator.close().await.expect("it answers");
        self.url(&name)
    }

    /// Restores a backup of a database, made now, as another database, and returns its URL.
    pub async fn copy(&self, database: &SecretUrl) -> SecretUrl {
        let copy = self.create_database().await;
        let dumped = Self::tool("pg_dump")
            .args(["--no-owner", "--dbname", database.expose()])
            .output()
            .expect("pg_dump runs");
        assert!(dumped.status.success(), "pg_dump: {dumped:?}");
        let mut restoring = Self::tool("psql")
            .args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"])
            .args(["--dbname", copy.expose()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("psql runs");
        let mut input = restoring.stdin.take().expect("piped");
        input.write_all(&dumped.stdout).expect("psql reads it");
        drop(input);
        assert!(restoring.wait().expect("psql runs").success());
        copy
    }

    /// Runs a statement as an operator of the server.
    pub async fn execute(&self, statement: &'static str) {
        let mut operator = self.operator().await;
        operator.execute(statement).await.expect("it is done");
    }

    /// Returns the number that a query of an operator of the server selects.
    pub async fn count(&self, query: &'static str) -> i64 {
        let mut operator = self.operator().await;
        let count = sqlx::query_scalar(query).fetch_one(&mut operator).await;
        count.expect("a number")
    }

    /// Connects to the database `postgres` as an operator of the server.
    pub async fn operator(&self) -> sqlx::AnyConnection {
        sqlx::any::install_default_drivers();
        let connected = sqlx::AnyConnection::connect(self.url("postgres").expose()).await;
        connected.expect("it answers")
    }

    fn url(&self, database: &str) -> SecretUrl {
        let port = self.server.port;
        SecretUrl::new(format!(
            "postgres://weir:{PASSWORD}@127.0.0.1:{port}/{database}"
        ))
    }

    /// A program of the PostgreSQL installation, such as `pg_dump`.
    pub fn tool(name: &str) -> Command {
        Command::new(postgres_binaries().join(name))
    }

    /// The folder with all its files.
    pub fn folder(&self) -> &Path {
        &self.server.folder
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.server.port))
    }

    /// The id of its process, whose children serve the connections.
    pub fn process_id(&self) -> u32 {
        self.server.process_id()
    }

    /// Starts PgBouncer in front of a database, with this `pool_mode`. Its other settings are Debian's, except those that
    /// let it run here.
    pub fn start_pooler(&self, database: &SecretUrl, pool_mode: &str) -> (Pooler, SecretUrl) {
        let folder = Folder::new();
        let users = folder.write("users", &format!("\"weir\" \"{PASSWORD}\"\n"));
        let server_port = self.server.port;
        let server = Server::start(folder, |folder, port| {
            // PgBouncer refuses `extra_float_digits`, which drivers send, unless it is told to ignore it:
            // https://www.pgbouncer.org/config.html#ignore_startup_parameters
            let settings = folder.write(
                "pgbouncer.ini",
                &format!(
                    "[databases]\n* = host=127.0.0.1 port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
                     listen_port = {port}\nunix_socket_dir =\nauth_type = plain\nauth_file = {}\npool_mode = {pool_mode}\n\
                     ignore_startup_parameters = extra_float_digits\n",
                    users.display()
                ),
            );
            let mut command = as_unprivileged(Path::new("/usr/sbin/pgbouncer"));
            command.arg(settings);
            command
        });
        server.wait_until(|port| TcpStream::connect(("127.0.0.1", port)).is_ok());
        let url = with_port(database, server.port);
        (Pooler { _server: server }, url)
    }

    /// Kills the server and its sessions, as a crash would.
    pub fn kill(&self) {
        self.server.kill();
    }

    /// Stops all responses, with connections open.
    pub fn pause(&self) {
        self.server.signal("-STOP");
    }

    /// Continues after [`Self::pause`].
    pub fn resume(&self) {
        self.server.signal("-CONT");
    }

    /// Starts the server again after [`Self::kill`], on the same port.
    pub fn restart(&self) {
        let lock = self.server.folder.join("data/postmaster.pid");
        let _ = fs::remove_file(lock);
        self.server.launch();
        self.wait();
    }

    fn wait(&self) {
        self.server.wait_until(|port| {
            as_unprivileged(&postgres_binaries().join("pg_isready"))
                .args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()])
                .status()
                .is_ok_and(|status| status.success())
        });
    }
}

impl Authority {
    /// Makes its key and its certificate.
    pub fn make() -> Self {
        let authority = Self(tempfile::tempdir().expect("a temporary folder can be made"));
        authority.openssl(&[
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
            "-subj",
            "/CN=weir tests",
        ]);
        authority
    }

    /// Its certificate's file.
    pub fn certificate(&self) -> PathBuf {
        self.0.path().join("ca.pem")
    }

    /// Gives a server a certificate for this name only, and lets it use TLS from its next look at its settings on.
    pub fn certify(&self, server: &Postgres, name: &str) {
        let name = format!("subjectAltName={name}");
        self.openssl(&[
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-keyout",
            "server.key",
            "-out",
            "server.crt",
            "-subj",
            "/CN=server",
            "-addext",
            &name,
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ]);
        let data = server.folder().join("data");
        let settings = fs::File::options()
            .append(true)
            .open(data.join("postgresql.conf"));
        writeln!(settings.expect("it is there"), "ssl = on").expect("it can be written");
        // PostgreSQL refuses a key that others may read, and runs as another user if the tests run as root.
        for file in ["server.key", "server.crt"] {
            fs::copy(self.0.path().join(file), data.join(file)).expect("the folder can be written");
            let owner = format!("--reference={}", data.display());
            for change in [["chown", &owner], ["chmod", "600"]] {
                let changed = Command::new(change[0])
                    .arg(change[1])
                    .arg(data.join(file))
                    .status();
                assert!(changed.is_ok_and(|status| status.success()), "{change:?}");
            }
        }
        let reloaded = as_unprivileged(&postgres_binaries().join("pg_ctl"))
            .args(["reload", "--silent", "--pgdata"])
            .arg(&data)
            .status();
        assert!(reloaded.is_ok_and(|status| status.success()), "pg_ctl");
    }

    fn openssl(&self, arguments: &[&str]) {
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-nodes",
                "-days",
                "2",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ])
            .args(arguments)
            .current_dir(self.0.path())
            .output()
            .expect("openssl runs");
        assert!(made.status.success(), "openssl: {made:?}");
    }
}

impl Redis {
    /// Starts a separate server.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with further options, each with its values.
    pub fn start_with(options: &[&[&str]]) -> Self {
        let folder = Folder::new();
        let path = folder.0.clone();
        let server = Server::start(folder, |_, port| {
            let mut command = Command::new("redis-server");
            command
                .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
                .args(["--requirepass", PASSWORD, "--masterauth", PASSWORD])
                .args(["--save", "", "--appendonly", "no"])
                .arg("--dir")
                .arg(&path)
                .args(options.concat());
            command
        });
        let server = Self { server };
        server.wait();
        server
    }

    /// Starts a replica of this server.
    fn start_replica(&self) -> Self {
        let port = self.port().to_string();
        Self::start_with(&[
            &["--replicaof", "127.0.0.1", &port],
            &["--repl-diskless-sync-delay", "0"],
        ])
    }

    /// Starts a Sentinel that watches this server under the name `mymaster`, with a quorum of 2.
    fn start_sentinel(&self) -> Self {
        let master = self.port();
        let server = Server::start(Folder::new(), |folder, port| {
            let settings = folder.write(
                "sentinel.conf",
                &format!(
                    "bind 127.0.0.1\nport {port}\nsentinel monitor mymaster 127.0.0.1 {master} 2\n\
                     sentinel auth-pass mymaster {PASSWORD}\nsentinel down-after-milliseconds mymaster 500\n\
                     sentinel failover-timeout mymaster 3000\n"
                ),
            );
            let mut command = Command::new("redis-server");
            command.arg(settings).arg("--sentinel");
            command
        });
        let server = Self { server };
        server.wait();
        server
    }

    /// Starts a node of a cluster; it has no slots.
    pub fn start_node() -> Self {
        // The default is the port plus 10,000, which may be none.
        let bus = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let bus = bus.expect("a free port").port().to_string();
        Self::start_with(&[
            &["--cluster-enabled", "yes"],
            &["--cluster-port", &bus],
            &["--cluster-node-timeout", "1000"],
            &["--repl-diskless-sync-delay", "0"],
        ])
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// The id of a node of a cluster.
    pub fn cluster_id(&self) -> String {
        let command = format!("AUTH {PASSWORD}\r\nCLUSTER MYID\r\n");
        let answer = ask(self.port(), &command, 3).expect("it answers");
        answer.lines().last().expect("an id").to_owned()
    }

    /// The address of a node of a cluster and its two ports, as `CLUSTER MEET` takes them.
    pub fn node_address(&self) -> String {
        let command = format!("AUTH {PASSWORD}\r\nCONFIG GET cluster-port\r\n");
        let answer = ask(self.port(), &command, 6).expect("it answers");
        let bus = answer.lines().last().expect("a port");
        format!("127.0.0.1 {} {bus}", self.port())
    }

    /// The port of the master that a Sentinel names.
    fn named_master(&self) -> u16 {
        let command = "SENTINEL GET-MASTER-ADDR-BY-NAME mymaster\r\n";
        let answer = ask(self.port(), command, 5).expect("it answers");
        let port = answer.lines().last().and_then(|port| port.parse().ok());
        port.unwrap_or_else(|| panic!("an address: {answer}"))
    }

    /// Its URL.
    pub fn url(&self) -> SecretUrl {
        Self::url_of("redis", &[self], "")
    }

    /// A URL with this scheme, these servers and this path.
    pub fn url_of(scheme: &str, servers: &[&Self], path: &str) -> SecretUrl {
        let hosts: Vec<_> = servers
            .iter()
            .map(|server| format!("127.0.0.1:{}", server.port()))
            .collect();
        let hosts = hosts.join(",");
        SecretUrl::new(format!("{scheme}://:{PASSWORD}@{hosts}{path}"))
    }

    /// The id of its process.
    pub fn process_id(&self) -> u32 {
        self.server.process_id()
    }

    /// The folder of its dumps.
    pub fn folder(&self) -> &Path {
        &self.server.folder
    }

    /// Kills the server.
    pub fn kill(&self) {
        self.server.kill();
    }

    /// Stops all responses, with connections open.
    pub fn pause(&self) {
        self.server.signal("-STOP");
    }

    /// Continues after [`Self::pause`].
    pub fn resume(&self) {
        self.server.signal("-CONT");
    }

    /// Starts the server again after [`Self::kill`], empty, on the same port.
    pub fn restart(&self) {
        self.server.launch();
        self.wait();
    }

    /// Waits until a value in [`Self::info`] is as expected.
    pub fn wait_for(&self, name: &str, is_so: impl Fn(&str) -> bool) {
        let until = Instant::now() + PATIENCE;
        loop {
            // A Sentinel ends the connections of a server whose role it changes.
            let info = self.try_info();
            let value = info.as_ref().ok().and_then(|info| info.get(name));
            if value.is_some_and(|value| is_so(value)) {
                return;
            }
            assert!(Instant::now() < until, "{name}: {info:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the server's own counts and settings by name, from `INFO all`.
    pub fn info(&self) -> BTreeMap<String, String> {
        self.try_info().expect("it answers")
    }

    fn try_info(&self) -> io::Result<BTreeMap<String, String>> {
        let text = format!("AUTH {PASSWORD}\r\nINFO all\r\nPING\r\n");
        let mut stream = TcpStream::connect(("127.0.0.1", self.server.port))?;
        stream.write_all(text.as_bytes())?;
        let mut found = BTreeMap::new();
        for line in BufReader::new(stream).lines() {
            let line = line?;
            if line == "+PONG" {
                break;
            }
            if let Some((name, value)) = line.split_once(':') {
                found.insert(name.to_owned(), value.to_owned());
            }
        }
        Ok(found)
    }

    /// Runs a command and returns the first bytes of the response as they arrive.
    pub fn command(&self, command: &str) -> String {
        ask(
            self.server.port,
            &format!("AUTH {PASSWORD}\r\n{command}\r\n"),
            2,
        )
        .expect("it answers")
    }

    fn wait(&self) {
        self.server
            .wait_until(|port| ask(port, "PING\r\n", 1).is_ok());
    }
}

impl Sentinels {
    /// Starts all servers, and waits until they know each other.
    pub fn start() -> Self {
        let master = Redis::start();
        let replica = master.start_replica();
        let sentinels = [(); 3].map(|()| master.start_sentinel());
        let started = Self {
            servers: [master, replica],
            sentinels,
        };
        started.wait_for_replica();
        started
    }

    /// The URL of its master.
    pub fn url(&self) -> SecretUrl {
        let [a, b, c] = &self.sentinels;
        Redis::url_of("redis-sentinel", &[a, b, c], "/mymaster/0")
    }

    /// The server that at least two Sentinels name as the master, and the other one; `None` if they disagree.
    pub fn master(&self) -> Option<[&Redis; 2]> {
        let named = self.sentinels.each_ref().map(Redis::named_master);
        let [first, second] = &self.servers;
        let votes = |server: &Redis| named.iter().filter(|port| **port == server.port()).count();
        match (votes(first), votes(second)) {
            (2.., _) => Some([first, second]),
            (_, 2..) => Some([second, first]),
            _ => None,
        }
    }

    /// Elects another master, although the present one responds.
    pub fn fail_over(&self) {
        let until = Instant::now() + PATIENCE;
        let command = "SENTINEL FAILOVER mymaster";
        while !self.sentinels[0].command(command).ends_with("+OK\r\n") {
            assert!(Instant::now() < until, "no replica is in step");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until a replica follows the master, and all Sentinels know it.
    pub fn wait_for_replica(&self) {
        for sentinel in &self.sentinels {
            sentinel.wait_for("master0", |known| {
                known.contains("status=ok") && known.ends_with("slaves=1,sentinels=3")
            });
        }
        let master = self.master();
        let [_, replica] = master.expect("they agree");
        replica.wait_for("master_link_status", |status| status == "up");
    }
}

/// The URL with another port.
pub(crate) fn with_port(url: &SecretUrl, port: u16) -> SecretUrl {
    let mut parsed = url::Url::parse(url.expose()).expect("a URL");
    parsed.set_port(Some(port)).expect("it has a host");
    SecretUrl::new(parsed.to_string())
}

/// Sends lines and reads as many lines.
fn ask(port: u16, text: &str, lines: usize) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(text.as_bytes())?;
    let mut reader = BufReader::new(stream);
    let mut answer = String::new();
    for _ in 0..lines {
        reader.read_line(&mut answer)?;
    }
    Ok(answer)
}

/// A folder for a server; the shell removes it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("weir-store-")
            .tempdir()
            .expect("a temporary folder can be made")
            .keep();
        // PostgreSQL runs as another user if the tests run as root.
        if is_root() {
            let given = Command::new("chown").arg("nobody").arg(&folder).status();
            assert!(given.is_ok_and(|status| status.success()), "root may");
        }
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("the folder can be written");
        path
    }
}

/// Compiles the library that delays flushes of the WAL.
fn compile_late_fsync(folder: &Folder) -> PathBuf {
    let source = folder.write("late_fsync.c", include_str!("late_fsync.c"));
    let library = folder.0.join("late_fsync.so");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .args([&library, &source])
        .output()
        .expect("cc runs");
    assert!(compiled.status.success(), "cc: {compiled:?}");
    library
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Wraps a program for another user: PostgreSQL refuses to run as root. No other server needs this.
pub(crate) fn as_unprivileged(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"])
        .arg(program)
        .current_dir("/");
    command
}

fn postgres_binaries() -> PathBuf {
    let mut versions: Vec<_> = fs::read_dir("/usr/lib/postgresql")
        .expect("PostgreSQL is installed; tests/run does it")
        .map(|entry| entry.expect("an entry").path().join("bin"))
        .filter(|folder| folder.join("postgres").exists())
        .collect();
    versions.sort();
    versions
        .pop()
        .expect("PostgreSQL is installed; tests/run does it")
}

pub(crate) struct Server {
    port: u16,
    folder: PathBuf,
    keeper: Mutex<Keeper>,
}

struct Keeper {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    server: Process,
}

/// A process, identified uniquely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    id: u32,
    /// Start time in clock ticks since the machine's boot.
    began: u64,
}

/// Linux's status of a process.
struct Status {
    process: Process,
    parent: u32,
    has_ended: bool,
}

impl Status {
    fn read(id: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // `id (name) state parent …`; the 22nd field is the start time. The name may contain any character.
        let fields: Vec<_> = text.rsplit(") ").next()?.split(' ').collect();
        Some(Self {
            process: Process {
                id,
                began: fields.get(19)?.parse().ok()?,
            },
            parent: fields.get(1)?.parse().ok()?,
            has_ended: *fields.first()? == "Z",
        })
    }
}

impl Server {
    pub(crate) fn start(folder: Folder, command: impl FnOnce(&Folder, u16) -> Command) -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("the loopback interface has a free port")
            .port();
        let server = command(&folder, port);
        let mut child = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .arg(&folder.0)
            .arg(server.get_program())
            .args(server.get_args())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A signal to the tests must not reach the process that cleans up after them.
            .process_group(0)
            .spawn()
            .expect("sh runs");
        let server = Self {
            port,
            folder: folder.0,
            keeper: Mutex::new(Keeper {
                orders: child.stdin.take(),
                answers: BufReader::new(child.stdout.take().expect("piped")),
                child,
                server: Process { id: 0, began: 0 },
            }),
        };
        server.launch();
        server
    }

    fn launch(&self) {
        let mut keeper = self.keeper.lock().expect("no panic in here");
        let orders = keeper.orders.as_mut().expect("it is not dropped");
        orders.write_all(b"start\n").expect("the keeper is there");
        let mut answer = String::new();
        keeper
            .answers
            .read_line(&mut answer)
            .expect("the keeper is there");
        let mut numbers = answer.split_whitespace();
        let mut number = || numbers.next()?.parse::<u64>().ok();
        let (id, began) = (number().expect("an id"), number().expect("when it began"));
        let id = u32::try_from(id).expect("an id");
        keeper.server = Process { id, began };
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn process_id(&self) -> u32 {
        self.keeper.lock().expect("no panic in here").server.id
    }

    pub(crate) fn wait_until(&self, ready: impl Fn(u16) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !ready(self.port) {
            let has_ended = self.family().is_empty();
            if has_ended || Instant::now() > until {
                let log = fs::read_to_string(self.folder.join("log"));
                panic!("a server does not start (has it ended? {has_ended}): {log:?}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the server and its live children; empty once the server has ended.
    fn family(&self) -> Vec<u32> {
        let server = self.keeper.lock().expect("no panic in here").server;
        let is_server = |status: &Status| status.process == server && !status.has_ended;
        if !Status::read(server.id).is_some_and(|status| is_server(&status)) {
            return Vec::new();
        }
        fs::read_dir("/proc")
            .expect("Linux")
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(Status::read)
            .filter(|status| is_server(status) || status.parent == server.id && !status.has_ended)
            .map(|status| status.process.id)
            .collect()
    }

    /// Kills the server and its children and waits for their end.
    fn kill(&self) {
        let until = Instant::now() + PATIENCE;
        while !self.family().is_empty() {
            assert!(Instant::now() < until, "a server survives SIGKILL");
            self.signal("-KILL");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn signal(&self, signal: &str) {
        let ids = self.family().into_iter().map(|id| id.to_string());
        // A process may have ended meanwhile.
        let _ = Command::new("kill")
            .arg(signal)
            .args(ids)
            .stderr(Stdio::null())
            .status();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(keeper) = self.keeper.get_mut() {
            keeper.orders = None;
            let _ = keeper.child.wait();
        }
    }
}
