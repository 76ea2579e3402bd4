//! The servers of a PostgreSQL database: its URL may name several, and one of them accepts writes.
//!
//! sqlx connects to one host. weir therefore keeps one set of options per host, and lets the pools connect to the server that
//! accepts writes. If a statement or a connection fails, a search asks all servers at once, so a silent server costs the time
//! limit of one attempt, however many there are.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use sqlx::any::AnyConnectOptions;
use sqlx::{AnyConnection, AnyPool, Connection};

use super::START_TIMEOUT;
use super::server_role::{Doubt, Role};
use crate::secrets::SecretUrl;

/// Time limit for the start of a server that refuses connections.
const SERVER_STARTS_WITHIN: Duration = Duration::from_secs(10);

/// Time limit of an attempt to reach one of several servers: libpq's shortest `connect_timeout`.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// Time between two searches: servers take seconds to fail over.
const SEARCH_EVERY: Duration = Duration::from_millis(250);

pub(super) const READ_ONLY: &str = "the server accepts no writes: it is a standby, or read-only";

/// Parameters that sqlx understands. sqlx logs others with their values, which may be secrets under a mistyped name.
const PARAMETERS: &[&str] = &[
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
];

/// The servers of a database, in the order of its URL. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Servers {
    all: Arc<[Server]>,
    writer: Arc<Writer>,
}

/// A server, and the options of connections to it.
#[derive(Debug)]
struct Server {
    /// Its host and port, for messages.
    name: String,
    options: AnyConnectOptions,
}

/// The server that the pools connect to.
#[derive(Debug)]
struct Writer {
    index: AtomicUsize,
    started: Instant,
    /// Milliseconds from the start to the last change of the index; 0 before the first. Older connections may be to another
    /// server. Each use of a connection reads it, so it is no lock.
    changed_at_ms: AtomicU64,
}

/// The failures of all servers, by their index.
#[derive(Debug)]
struct NoWriter(Vec<(usize, sqlx::Error)>);

impl Servers {
    /// Reads the servers of a URL; the error never quotes the URL.
    pub(super) fn of(url: &SecretUrl) -> anyhow::Result<Self> {
        let all: Vec<_> = url
            .one_per_host()
            .iter()
            .map(Server::of)
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            all: all.into(),
            writer: Arc::new(Writer {
                index: AtomicUsize::new(0),
                started: Instant::now(),
                changed_at_ms: AtomicU64::new(0),
            }),
        })
    }

    /// Returns the options for the server that accepted writes last.
    pub(super) fn options(&self) -> &AnyConnectOptions {
        &self.all[self.writer.index.load(Ordering::Relaxed)].options
    }

    /// Connects to the server that accepted writes last.
    pub(super) async fn connect(&self) -> sqlx::Result<AnyConnection> {
        let last = self.writer.index.load(Ordering::Relaxed);
        self.all[last].connect(START_TIMEOUT).await
    }

    /// Returns whether a connection of this age may be to another server than the one that accepts writes now.
    pub(super) fn may_have_changed(&self, age: Duration) -> bool {
        let changed_at = self.writer.changed_at_ms.load(Ordering::Relaxed);
        let began = self.writer.started.elapsed().saturating_sub(age);
        changed_at != 0 && began.as_millis() <= changed_at.into()
    }

    /// Waits for a server that starts, or takes over, at the same time as this process, and returns a connection to it. The
    /// cause of the failure is logged at once and, if it persists, is the error: a pool would report only its own time-out.
    pub(super) async fn wait_for_writer(&self) -> anyhow::Result<AnyConnection> {
        let until = Instant::now() + SERVER_STARTS_WITHIN;
        let mut warned = false;
        loop {
            let failures = match self.find_writer().await {
                Ok((found, connection)) => {
                    self.change_to(found);
                    return Ok(connection);
                }
                Err(failures) => failures,
            };
            let may_start = failures.0.iter().any(|(_, error)| is_starting(error));
            let error = self.describe(failures);
            if !may_start || Instant::now() >= until {
                return Err(error);
            }
            if !warned {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the database is not available; retrying for {} s",
                    SERVER_STARTS_WITHIN.as_secs()
                );
                warned = true;
            }
            tokio::time::sleep(SEARCH_EVERY).await;
        }
    }

    /// Connects to the server that accepts writes, and names it if the URL has several.
    pub(super) async fn probe(&self) -> anyhow::Result<(Option<&str>, AnyConnection)> {
        match self.find_writer().await {
            Ok((found, connection)) => {
                self.change_to(found);
                let name = (self.all.len() > 1).then_some(&*self.all[found].name);
                Ok((name, connection))
            }
            Err(failures) => Err(self.describe(failures)),
        }
    }

    /// Keeps pools on the server that accepts writes, for ever; `None` if there is no choice. One search at a time follows
    /// failures, until it succeeds.
    pub(super) fn follow(
        &self,
        pools: [AnyPool; 2],
        doubt: Doubt,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let servers = self.clone();
        (self.all.len() > 1).then_some(async move {
            loop {
                doubt.has_failed().await;
                servers.search(&pools).await;
                tokio::time::sleep(SEARCH_EVERY).await;
            }
        })
    }

    async fn search(&self, pools: &[AnyPool; 2]) {
        let mut warned = false;
        loop {
            let failures = match self.find_writer().await {
                Ok((found, connection)) => {
                    // Its server keeps its slot for it until it is closed.
                    let _ = connection.close().await;
                    if self.change_to(found) {
                        for pool in pools {
                            pool.set_connect_options(self.all[found].options.clone());
                        }
                        tracing::warn!(
                            server = self.all[found].name,
                            "the database's primary changed"
                        );
                    }
                    return;
                }
                Err(failures) => failures,
            };
            if !warned {
                let error = format!("{:#}", self.describe(failures));
                tracing::warn!(error, "no server of the database accepts writes; retrying");
                warned = true;
            }
            tokio::time::sleep(SEARCH_EVERY).await;
        }
    }

    /// Asks all servers at once, and connects to the one that accepts writes. If several do, the one that did last goes first:
    /// a search must not move from a healthy primary to a former one.
    async fn find_writer(&self) -> Result<(usize, AnyConnection), NoWriter> {
        let last = self.writer.index.load(Ordering::Relaxed);
        let order = std::iter::once(last).chain((0..self.all.len()).filter(|&index| index != last));
        let timeout = match self.all.len() {
            1 => START_TIMEOUT,
            _ => ATTEMPT_TIMEOUT,
        };
        let mut attempts: FuturesOrdered<_> = order
            .map(|index| async move { (index, self.all[index].connect(timeout).await) })
            .collect();
        let mut failures = Vec::new();
        while let Some((index, outcome)) = attempts.next().await {
            match outcome {
                Ok(connection) => return Ok((index, connection)),
                Err(error) => failures.push((index, error)),
            }
        }
        Err(NoWriter(failures))
    }

    /// Notes the server that accepts writes, and returns whether it is another one than before.
    fn change_to(&self, found: usize) -> bool {
        let changed = self.writer.index.swap(found, Ordering::Relaxed) != found;
        if changed {
            let now = self.writer.started.elapsed().as_millis() as u64;
            let changed_at = &self.writer.changed_at_ms;
            changed_at.store(now.max(1), Ordering::Relaxed);
        }
        changed
    }

    fn describe(&self, NoWriter(failures): NoWriter) -> anyhow::Error {
        let mut each: Vec<_> = failures
            .into_iter()
            .map(|(index, error)| (index, anyhow::Error::from(error)))
            .collect();
        if let [(_, _)] = &*each {
            return each.remove(0).1;
        }
        each.sort_by_key(|(index, _)| *index);
        let each: Vec<_> = each
            .into_iter()
            .map(|(index, error)| format!("{}: {error:#}", self.all[index].name))
            .collect();
        anyhow!("no server accepts writes: {}", each.join("; "))
    }
}

impl Server {
    fn of(url: &SecretUrl) -> anyhow::Result<Self> {
        // The parser's error names the fault and never quotes the URL.
        let mut parsed = url::Url::parse(url.expose()).context("`database_url` is not a URL")?;
        let mut known = Vec::new();
        for (name, value) in parsed.query_pairs().into_owned() {
            if name == "target_session_attrs" {
                ensure!(
                    ["any", "read-write", "primary"].contains(&&*value),
                    "`database_url`: weir needs a server that accepts writes; set `target_session_attrs=read-write`"
                );
            } else if !PARAMETERS.contains(&&*name) && !name.starts_with("options[") {
                tracing::warn!(parameter = name, "`database_url`: unknown parameter");
            } else if ["host", "hostaddr", "port"].contains(&&*name) && value.contains(',') {
                bail!(
                    "`database_url`: write several hosts before the path, such as postgres://a:5432,b:5432/weir"
                );
            } else {
                known.push((name, value));
            }
        }
        // sqlx would look up the name `[::1]`.
        if let Some(url::Host::Ipv6(address)) = parsed.host() {
            known.push(("host".to_owned(), address.to_string()));
        }
        parsed.set_query(None);
        if !known.is_empty() {
            parsed.query_pairs_mut().extend_pairs(known);
        }
        let host = parsed.host_str().unwrap_or_default();
        let name = match parsed.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        Ok(Self {
            name,
            options: parsed.as_str().parse()?,
        })
    }

    /// Connects in time, if the server accepts writes.
    async fn connect(&self, timeout: Duration) -> sqlx::Result<AnyConnection> {
        let connecting = async {
            let mut connection = AnyConnection::connect_with(&self.options).await?;
            match Role::Writer.is_served(&mut connection).await? {
                true => Ok(connection),
                false => Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, READ_ONLY).into()),
            }
        };
        let too_late = || io::Error::new(io::ErrorKind::TimedOut, "the database does not respond");
        let connected = tokio::time::timeout(timeout, connecting).await;
        connected.unwrap_or_else(|_| Err(too_late().into()))
    }
}

/// Returns whether a server is likely to accept connections and writes soon: nothing listens yet, a load balancer has no server
/// for the connection, the server is read-only, it starts or stops (57P01 to 57P03), or it has `too many connections` (53300),
/// such as those of nodes that stop.
fn is_starting(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ReadOnlyFilesystem
        ),
        sqlx::Error::Database(error) => error
            .code()
            .is_some_and(|code| ["57P01", "57P02", "57P03", "53300"].contains(&&*code)),
        // sqlx's words for a connection that was closed instead of an answer.
        sqlx::Error::Protocol(problem) => problem.contains("response from SSLRequest: 0x00"),
        _ => false,
    }
}
