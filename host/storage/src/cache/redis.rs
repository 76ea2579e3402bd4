//! The cache in Redis, behind a breaker.
//!
//! One connection carries all commands. If it fails, weir drops it: commands are refused at once, while a background
//! task tries to reconnect and write, four times a second. The task also writes on a good connection each second, so
//! that an idle gateway notices an outage as well. A server that answers and refuses writes is an outage: out of memory,
//! without a disk or its replicas, a replica, or a user without rights.
//!
//! Every atomic operation is a script in `scripts/`. The cache needs one Redis, not a cluster: a script finds the
//! user's bucket in the record. Redis must not evict unexpired keys (`maxmemory-policy noeviction`, or enough
//! memory), or the cache loses counts and lockouts.
//!
//! After connecting, a node compares the server's own id with the id that began the epoch. The id changes on a
//! failover and on every restart of a server; a different id begins another epoch. After a flush, the next request
//! begins one.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::StreamExt;
use redis::aio::{MultiplexedConnection, PubSubStream};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, FromRedisValue, IntoConnectionInfo, RedisError,
    RedisResult, Script, ScriptInvocation, ServerErrorKind,
};
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use super::rare_log::RareLog;
use super::{
    Absence, Bucket, CacheError, CachedValue, CallerFindings, CallerLookup, CredentialRecord,
    Epoch, FillResult, Lockout, LockoutPolicy, MAX_LOCKOUTS, Rate, RateDecision, RecordKey,
    RecordLookup, Tombstone,
};
use crate::ids;
use crate::secrets::SecretUrl;

/// Default time limit of a command, including the loading of its script.
pub(super) const TIMEOUT: Duration = Duration::from_millis(250);

/// Time between two attempts to connect during an outage.
const PROBE_EVERY: Duration = Duration::from_millis(250);

/// Time between two writes that prove a connection.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Time limit for the first response.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Queue of commands to be sent; further commands wait for room. The library's default of 50 fills up under load.
const SEND_QUEUE: usize = 1_024;

/// Prefix of every key.
const NAMESPACE: &str = "weir:";

/// The cache in Redis. Cheap to clone.
#[derive(Clone)]
pub struct RedisCache {
    shared: Arc<RedisState>,
    _keeper: Arc<AbortOnDropHandle<()>>,
}

struct RedisState {
    url: SecretUrl,
    /// Time limit of a command.
    timeout: Duration,
    client: Client,
    /// `None` while the breaker is open.
    connection: RwLock<Option<NumberedConnection>>,
    /// Log lines of outages and of refused commands.
    outages: RareLog,
    refusals: RareLog,
    broken: Notify,
    identify: Script,
    fill: Script,
    probe: Script,
    look_at_epoch: Script,
    take: Script,
    charge: Script,
    count_failure: Script,
    lockouts: Script,
    keep_value: Script,
    put_large: Script,
    replace_versioned: Script,
}

/// A connection and its number: a late failure of one connection does not drop the next.
#[derive(Clone)]
struct NumberedConnection {
    number: u64,
    connection: MultiplexedConnection,
    /// The server's own id.
    server: Arc<str>,
}

impl RedisCache {
    pub(super) async fn open(url: &SecretUrl, timeout: Duration) -> anyhow::Result<Self> {
        let shared =
            RedisState::new(url, timeout).with_context(|| format!("opening the cache {url}"))?;
        let until = Instant::now() + START_TIMEOUT;
        let (connection, server) = loop {
            match shared.connect().await {
                Ok(connection) => break connection,
                Err(error) if is_outage(&error) && Instant::now() < until => {
                    tokio::time::sleep(PROBE_EVERY).await;
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("opening the cache {url}"));
                }
            }
        };
        shared.set(Some(NumberedConnection {
            number: 0,
            connection,
            server,
        }));
        let shared = Arc::new(shared);
        let keeper = tokio::spawn(keep_connected(Arc::downgrade(&shared)));
        Ok(Self {
            shared,
            _keeper: Arc::new(AbortOnDropHandle::new(keeper)),
        })
    }

    pub(super) async fn probe(url: &SecretUrl) -> anyhow::Result<()> {
        RedisState::new(url, TIMEOUT)?.connect().await?;
        Ok(())
    }

    pub(super) async fn begin_epoch(&self) -> Result<(), CacheError> {
        let until = Instant::now() + START_TIMEOUT;
        loop {
            let script = self.shared.look_at_epoch(&self.shared.server(), true);
            match self.run(&script).await {
                Err(CacheError::Unavailable) if Instant::now() < until => {
                    tokio::time::sleep(PROBE_EVERY).await;
                }
                outcome => return outcome,
            }
        }
    }

    pub(super) async fn identify(
        &self,
        request: &CallerLookup<'_>,
    ) -> Result<CallerFindings, CacheError> {
        let mut script = self.shared.identify.prepare_invoke();
        match request.address {
            Some((address, _)) => script
                .key(lockout_key(address))
                .key(bucket_key(Bucket::Address(address))),
            None => script.key("").key(""),
        };
        script
            .key(request.record.map(record_key).unwrap_or_default())
            .key(
                request
                    .record
                    .map(|key| tombstone_key(Tombstone::Record(key.id)))
                    .unwrap_or_default(),
            )
            .arg(request.address.map_or(0, |(_, rate)| rate.per_minute.get()))
            .arg(request.address.map_or(0, |(_, rate)| rate.of_strangers()))
            .key(epoch_key())
            .arg(bucket_key(Bucket::User("")))
            .arg(tombstone_key(Tombstone::User("")))
            .arg(&*self.shared.server());
        type Found = (
            u64,
            Option<RawRateDecision>,
            Option<Vec<u8>>,
            Option<RawRateDecision>,
            bool,
            u64,
        );
        let (blocked_ms, address, record, user, doubtful, epoch): Found = self.run(&script).await?;
        Ok(CallerFindings {
            locked_out: (blocked_ms > 0).then(|| Duration::from_millis(blocked_ms)),
            address: Option::map(address, decision),
            record: match record {
                None => RecordLookup::Missing,
                Some(packed) if packed.is_empty() => RecordLookup::Revoked,
                Some(_) if doubtful => RecordLookup::Doubtful,
                Some(packed) => RecordLookup::Found(unpack(&packed).ok_or(CacheError::Unexpected)?),
            },
            user: Option::map(user, decision),
            epoch: Epoch(epoch),
        })
    }

    pub(super) async fn fill(
        &self,
        key: RecordKey<'_>,
        record: &CredentialRecord,
        since: Epoch,
        ttl: Duration,
    ) -> Result<FillResult, CacheError> {
        let mut script = self.shared.fill.prepare_invoke();
        script
            .key(record_key(key))
            .key(tombstone_key(Tombstone::Record(key.id)))
            .key(tombstone_key(Tombstone::User(&record.user_id)))
            .key(epoch_key())
            .arg(pack(record))
            .arg(millis(ttl))
            .arg(since.0);
        let filled: u8 = self.run(&script).await?;
        match filled {
            0 => Ok(FillResult::Refused),
            1 => Ok(FillResult::Kept),
            2 => Ok(FillResult::InDoubt),
            3 => Ok(FillResult::Outdated),
            _ => Err(CacheError::Unexpected),
        }
    }

    pub(super) async fn bury(
        &self,
        tombstone: Tombstone<'_>,
        ttl: Duration,
    ) -> Result<(), CacheError> {
        let mut command = redis::cmd("SET");
        command
            .arg(tombstone_key(tombstone))
            .arg("")
            .arg("PX")
            .arg(millis(ttl));
        self.call(async |connection| command.query_async(connection).await)
            .await
    }

    pub(super) async fn count_failure(
        &self,
        address: &str,
        policy: LockoutPolicy,
    ) -> Result<Option<Duration>, CacheError> {
        let mut script = self.shared.count_failure.prepare_invoke();
        script
            .key(lockout_key(address))
            .key(failures_key(address))
            .key(lockouts_key())
            .key(failing_key())
            .arg(policy.failures.get())
            .arg(millis(policy.window) * 1_000)
            .arg(millis(policy.block))
            .arg(address)
            .arg(failures_key(""))
            .arg(MAX_LOCKOUTS);
        let blocked_ms: u64 = self.run(&script).await?;
        Ok((blocked_ms > 0).then(|| Duration::from_millis(blocked_ms)))
    }

    pub(super) async fn lockouts(&self, most: usize) -> Result<Vec<Lockout>, CacheError> {
        let mut script = self.shared.lockouts.prepare_invoke();
        script.key(lockouts_key()).arg(most).arg(lockout_key(""));
        let found: Vec<(String, u32, u64)> = self.run(&script).await?;
        let lockout = |(address, failures, left_ms)| Lockout {
            address,
            failures,
            left: Duration::from_millis(left_ms),
        };
        Ok(found.into_iter().map(lockout).collect())
    }

    pub(super) async fn clear_lockout(&self, address: &str) -> Result<bool, CacheError> {
        let mut commands = redis::pipe();
        commands
            .atomic()
            .del(lockout_key(address))
            .del(failures_key(address))
            .ignore()
            .zrem(lockouts_key(), address)
            .ignore()
            .zrem(failing_key(), address)
            .ignore();
        let (cleared,): (u32,) = self
            .call(async |connection| commands.query_async(connection).await)
            .await?;
        Ok(cleared > 0)
    }

    pub(super) async fn take(
        &self,
        bucket: Bucket<'_>,
        rate: Rate,
    ) -> Result<RateDecision, CacheError> {
        let mut script = self.shared.take.prepare_invoke();
        script.key(bucket_key(bucket)).arg(rate.per_minute.get());
        self.run(&script).await.map(decision)
    }

    pub(super) async fn charge(
        &self,
        bucket: Bucket<'_>,
        rate: Rate,
        number: u32,
    ) -> Result<(), CacheError> {
        let mut script = self.shared.charge.prepare_invoke();
        script.key(bucket_key(bucket)).arg(rate.per_minute.get());
        script.arg(number);
        self.run::<i64>(&script).await.map(drop)
    }

    pub(super) async fn find_value(&self, name: &str) -> Result<CachedValue, CacheError> {
        let mut command = redis::cmd("GET");
        command.arg(value_key(name));
        let found: Option<Vec<u8>> = self
            .call(async |connection| command.query_async(connection).await)
            .await?;
        match found.as_deref() {
            None => Ok(CachedValue::Absent(Absence(0))),
            Some([VALUE, value @ ..]) => Ok(CachedValue::Found(value.to_owned())),
            Some(mark) => read_mark(mark).map(CachedValue::Absent).ok_or_else(|| {
                tracing::error!("a value in Redis is not in weir's format");
                CacheError::Unexpected
            }),
        }
    }

    pub(super) async fn keep_value(
        &self,
        name: &str,
        value: &[u8],
        since: Absence,
        ttl: Duration,
    ) -> Result<bool, CacheError> {
        let mut script = self.shared.keep_value.prepare_invoke();
        script
            .key(value_key(name))
            .arg(mark(since))
            .arg([&[VALUE], value].concat())
            .arg(millis(ttl));
        self.run(&script).await
    }

    pub(super) async fn put_value(
        &self,
        name: &str,
        value: &[u8],
        ttl: Duration,
    ) -> Result<(), CacheError> {
        let mut command = redis::cmd("SET");
        command
            .arg(value_key(name))
            .arg([&[VALUE], value].concat())
            .arg("PX")
            .arg(millis(ttl));
        self.call(async |connection| command.query_async(connection).await)
            .await
    }

    pub(super) async fn find_large(&self, name: &str) -> Result<Option<Arc<[u8]>>, CacheError> {
        let mut command = redis::cmd("GET");
        command.arg(large_key(name));
        let found: Option<Vec<u8>> = self
            .call(async |connection| command.query_async(connection).await)
            .await?;
        Ok(found.map(Arc::from))
    }

    pub(super) async fn put_large(
        &self,
        name: &str,
        value: &[u8],
        ttl: Duration,
        most: usize,
    ) -> Result<(), CacheError> {
        let mut script = self.shared.put_large.prepare_invoke();
        script
            .key(large_key(name))
            .key(large_names_key())
            .arg(value)
            .arg(millis(ttl))
            .arg(name)
            .arg(large_key(""))
            .arg(most);
        self.run(&script).await
    }

    pub(super) async fn pause(&self, name: &str, time: Duration) -> Result<(), CacheError> {
        let mut command = redis::cmd("SET");
        command
            .arg(pause_key(name))
            .arg("")
            .arg("PX")
            .arg(millis(time).max(1));
        self.call(async |connection| command.query_async(connection).await)
            .await
    }

    pub(super) async fn resume(&self, name: &str) -> Result<(), CacheError> {
        let mut command = redis::cmd("DEL");
        command.arg(pause_key(name));
        self.call(async |connection| command.query_async(connection).await)
            .await
    }

    pub(super) async fn pauses(
        &self,
        names: &[Arc<str>],
    ) -> Result<Vec<Option<Duration>>, CacheError> {
        // The library treats an empty pipeline as an outage.
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut commands = redis::pipe();
        for name in names {
            commands.cmd("PTTL").arg(pause_key(name));
        }
        let left_ms: Vec<i64> = self
            .call(async |connection| commands.query_async(connection).await)
            .await?;
        // Redis returns a negative number for a missing key.
        let left = |ms: i64| u64::try_from(ms).ok().map(Duration::from_millis);
        Ok(left_ms.into_iter().map(left).collect())
    }

    pub(super) async fn drop_value(&self, name: &str, ttl: Duration) -> Result<(), CacheError> {
        let mut command = redis::cmd("SET");
        command
            .arg(value_key(name))
            .arg(mark(Absence(ids::unlike_any_other())))
            .arg("PX")
            .arg(millis(ttl));
        self.call(async |connection| command.query_async(connection).await)
            .await
    }

    /// Returns a value and the version stored before it.
    pub(crate) async fn find_versioned(
        &self,
        name: &str,
    ) -> Result<Option<(u64, Vec<u8>)>, CacheError> {
        let mut command = redis::cmd("GET");
        command.arg(versioned_key(name));
        let found: Option<Vec<u8>> = self
            .call(async |connection| command.query_async(connection).await)
            .await?;
        let Some(found) = found else {
            return Ok(None);
        };
        let Some((version, value)) = found.split_first_chunk() else {
            tracing::error!("a value in Redis is not in weir's format");
            return Err(CacheError::Unexpected);
        };
        Ok(Some((u64::from_be_bytes(*version), value.to_owned())))
    }

    pub(crate) async fn replace_versioned(
        &self,
        name: &str,
        before: Option<u64>,
        version: u64,
        value: &[u8],
        ttl: Duration,
    ) -> Result<bool, CacheError> {
        let before = before.map(u64::to_be_bytes);
        let mut script = self.shared.replace_versioned.prepare_invoke();
        script
            .key(versioned_key(name))
            .arg(before.as_ref().map_or(&[][..], |before| &before[..]))
            .arg([&version.to_be_bytes(), value].concat())
            .arg(millis(ttl));
        self.run(&script).await
    }

    pub(crate) async fn remove_versioned(&self, name: &str) -> Result<bool, CacheError> {
        let mut command = redis::cmd("DEL");
        command.arg(versioned_key(name));
        self.call(async |connection| command.query_async(connection).await)
            .await
    }

    pub(super) async fn announce(&self) -> Result<(), CacheError> {
        let mut command = redis::cmd("PUBLISH");
        command.arg(announcement_channel()).arg("");
        self.call(async |connection| command.query_async(connection).await)
            .await
    }

    pub(super) fn announcements(&self) -> RedisAnnouncements {
        RedisAnnouncements {
            client: self.shared.client.clone(),
            subscription: None,
        }
    }

    pub(super) async fn probe_writes(&self) -> Result<(), CacheError> {
        self.shared.probe_writes().await
    }

    async fn run<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<T, CacheError> {
        self.call(async |connection| script.invoke_async(connection).await)
            .await
    }

    async fn call<T>(
        &self,
        command: impl AsyncFnOnce(&mut MultiplexedConnection) -> RedisResult<T>,
    ) -> Result<T, CacheError> {
        self.shared.call(command).await
    }
}

/// A subscription to announcements of nodes, on a connection of its own.
pub struct RedisAnnouncements {
    client: Client,
    subscription: Option<PubSubStream>,
}

impl RedisAnnouncements {
    pub(super) async fn next(&mut self) {
        loop {
            let Some(subscription) = &mut self.subscription else {
                match self.subscribe().await {
                    Ok(subscription) => self.subscription = Some(subscription),
                    // The breaker logs the outage, and no code depends on an announcement.
                    Err(_) => tokio::time::sleep(CHECK_EVERY).await,
                }
                continue;
            };
            if subscription.next().await.is_some() {
                return;
            }
            self.subscription = None;
        }
    }

    async fn subscribe(&self) -> RedisResult<PubSubStream> {
        in_time(TIMEOUT, async {
            let mut connection = self.client.get_async_pubsub().await?;
            connection.subscribe(announcement_channel()).await?;
            Ok(connection.into_on_message())
        })
        .await
    }
}

impl fmt::Debug for RedisCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RedisCache({})", self.shared.url)
    }
}

impl RedisState {
    fn new(url: &SecretUrl, timeout: Duration) -> RedisResult<Self> {
        let info = url
            .expose()
            .into_connection_info()?
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let script = |code: &str| Script::new(&[include_str!("scripts/rate.lua"), code].concat());
        Ok(Self {
            url: url.clone(),
            timeout,
            client: Client::open(info)?,
            connection: RwLock::new(None),
            outages: RareLog::default(),
            refusals: RareLog::default(),
            broken: Notify::new(),
            identify: script(include_str!("scripts/identify.lua")),
            fill: Script::new(include_str!("scripts/fill.lua")),
            probe: Script::new(include_str!("scripts/probe.lua")),
            look_at_epoch: script(include_str!("scripts/look_at_epoch.lua")),
            take: script(include_str!("scripts/take.lua")),
            charge: script(include_str!("scripts/charge.lua")),
            count_failure: script(include_str!("scripts/count_failure.lua")),
            lockouts: Script::new(include_str!("scripts/lockouts.lua")),
            keep_value: Script::new(include_str!("scripts/keep_value.lua")),
            put_large: script(include_str!("scripts/put_large.lua")),
            replace_versioned: Script::new(include_str!("scripts/replace_versioned.lua")),
        })
    }

    /// Runs a command; while the breaker is open, refuses it at once.
    async fn call<T>(
        &self,
        command: impl AsyncFnOnce(&mut MultiplexedConnection) -> RedisResult<T>,
    ) -> Result<T, CacheError> {
        self.attempt(command, is_outage).await
    }

    /// Writes as a request does. Each refusal is an outage.
    async fn probe_writes(&self) -> Result<(), CacheError> {
        self.attempt(async |connection| self.write(connection).await, |_| true)
            .await
    }

    /// Runs a command. An outage, according to its error, opens the breaker.
    async fn attempt<T>(
        &self,
        command: impl AsyncFnOnce(&mut MultiplexedConnection) -> RedisResult<T>,
        is_outage: impl FnOnce(&RedisError) -> bool,
    ) -> Result<T, CacheError> {
        let Some(NumberedConnection {
            number,
            mut connection,
            ..
        }) = self.get()
        else {
            return Err(CacheError::Unavailable);
        };
        match in_time(self.timeout, command(&mut connection)).await {
            Ok(answer) => Ok(answer),
            Err(error) if is_outage(&error) => {
                self.open_breaker(number, &error);
                Err(CacheError::Unavailable)
            }
            Err(error) => {
                if let Some(times) = self.refusals.count() {
                    tracing::error!(%error, times, "Redis refused a command");
                }
                Err(CacheError::Unexpected)
            }
        }
    }

    async fn write(&self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        let mut probe = self.probe.prepare_invoke();
        probe.key(format!("{NAMESPACE}probe"));
        probe.invoke_async(connection).await
    }

    /// Connects and proves that the server accepts writes: a read-only replica would respond as well.
    async fn connect(&self) -> RedisResult<(MultiplexedConnection, Arc<str>)> {
        let config = AsyncConnectionConfig::new()
            .set_pipeline_buffer_size(SEND_QUEUE)
            // The time-outs cover complete calls; the library's own are off.
            .set_connection_timeout(None)
            .set_response_timeout(None);
        in_time(self.timeout, async {
            let mut connection = self
                .client
                .get_multiplexed_async_connection_with_config(&config)
                .await?;
            self.write(&mut connection).await?;
            let info = redis::cmd("INFO")
                .arg("server")
                .query_async::<String>(&mut connection)
                .await;
            let info = match info {
                Err(error) if is_outage(&error) => return Err(error),
                // Access rules may forbid `INFO`. Then a flush begins another epoch, and a failover does so only if
                // it loses the number.
                info => info.unwrap_or_default(),
            };
            let server: Arc<str> = server_id(&info).into();
            let look = self.look_at_epoch(&server, false);
            look.invoke_async::<()>(&mut connection).await?;
            Ok((connection, server))
        })
        .await
    }

    fn look_at_epoch(&self, server: &str, begin: bool) -> ScriptInvocation<'_> {
        let mut look = self.look_at_epoch.prepare_invoke();
        look.key(epoch_key()).arg(server).arg(u8::from(begin));
        look
    }

    fn open_breaker(&self, number: u64, error: &RedisError) {
        let mut current = self
            .connection
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if current
            .as_ref()
            .is_some_and(|current| current.number == number)
        {
            *current = None;
            drop(current);
            if let Some(times) = self.outages.count() {
                tracing::error!(redis = %self.url, %error, times, "Redis is unavailable");
            }
            self.broken.notify_one();
        }
    }

    /// Returns the id of the connected server; empty without a connection.
    fn server(&self) -> Arc<str> {
        self.get()
            .map_or_else(Arc::default, |numbered| numbered.server)
    }

    fn get(&self) -> Option<NumberedConnection> {
        self.connection
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, connection: Option<NumberedConnection>) {
        *self
            .connection
            .write()
            .unwrap_or_else(PoisonError::into_inner) = connection;
    }
}

async fn keep_connected(shared: Weak<RedisState>) {
    let mut number = 0;
    let mut last_failure = String::new();
    loop {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        if shared.get().is_some() {
            tokio::select! {
                () = shared.broken.notified() => {}
                () = tokio::time::sleep(CHECK_EVERY) => {
                    let _ = shared.probe_writes().await;
                }
            }
            continue;
        }
        match shared.connect().await {
            Ok((connection, server)) => {
                number += 1;
                last_failure.clear();
                shared.set(Some(NumberedConnection {
                    number,
                    connection,
                    server,
                }));
                tracing::info!(redis = %shared.url, "Redis is available again");
            }
            Err(error) => {
                // Each reason is logged once: a wrong password must not hide behind the outage.
                let why = error.to_string();
                if why != last_failure {
                    tracing::warn!(redis = %shared.url, %error, "Redis is still unavailable");
                    last_failure = why;
                }
                tokio::time::sleep(PROBE_EVERY).await;
            }
        }
    }
}

/// Returns the id that a server has had since its start, from its `INFO server`; empty if absent.
fn server_id(info: &str) -> &str {
    let mut lines = info.lines();
    let id = lines.find_map(|line| line.strip_prefix("run_id:"));
    id.unwrap_or_default().trim()
}

async fn in_time<T>(time: Duration, call: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    match tokio::time::timeout(time, call).await {
        Ok(outcome) => outcome,
        Err(_) => Err(RedisError::from(std::io::Error::from(
            std::io::ErrorKind::TimedOut,
        ))),
    }
}

/// Returns whether other commands would fail as well. A command refused for its own sake must not open the breaker
/// for all; missing rights may concern one command, so [`RedisState::probe_writes`] decides.
fn is_outage(error: &RedisError) -> bool {
    // https://redis.io/docs/latest/develop/reference/protocol-spec/#simple-errors: out of memory, unable to persist, and
    // too few replicas for a write.
    let refuses_writes = |code| ["OOM", "MISCONF", "NOREPLICAS"].contains(&code);
    matches!(
        error.kind(),
        ErrorKind::Io
            | ErrorKind::Client
            | ErrorKind::Server(
                ServerErrorKind::BusyLoading
                    | ServerErrorKind::ClusterDown
                    | ServerErrorKind::MasterDown
                    | ServerErrorKind::ReadOnly
            )
    ) || error.code().is_some_and(refuses_writes)
}

fn announcement_channel() -> String {
    format!("{NAMESPACE}changes")
}

/// Key of the epoch's number and the server's own id.
fn epoch_key() -> String {
    format!("{NAMESPACE}epoch")
}

fn lockout_key(address: &str) -> String {
    format!("{NAMESPACE}lockout:{address}")
}

fn failures_key(address: &str) -> String {
    format!("{NAMESPACE}failures:{address}")
}

/// Key of the addresses in lockout, sorted by the end of their lockout.
fn lockouts_key() -> String {
    format!("{NAMESPACE}lockouts")
}

/// Key of the addresses with failures but without lockout, sorted by the last failure.
fn failing_key() -> String {
    format!("{NAMESPACE}failing")
}

/// Nodes of November 2026 keep records without an epoch under `record:`.
fn record_key(key: RecordKey<'_>) -> String {
    format!("{NAMESPACE}key:{}", key.secret)
}

fn tombstone_key(tombstone: Tombstone<'_>) -> String {
    match tombstone {
        Tombstone::Record(id) => format!("{NAMESPACE}tombstone:record:{id}"),
        Tombstone::User(user_id) => format!("{NAMESPACE}tombstone:user:{user_id}"),
    }
}

fn bucket_key(bucket: Bucket<'_>) -> String {
    match bucket {
        Bucket::Address(address) => format!("{NAMESPACE}rate:address:{address}"),
        Bucket::User(user_id) => format!("{NAMESPACE}rate:user:{user_id}"),
        Bucket::Part(name) => format!("{NAMESPACE}rate:part:{name}"),
    }
}

fn versioned_key(name: &str) -> String {
    format!("{NAMESPACE}kept:{name}")
}

fn pause_key(name: &str) -> String {
    format!("{NAMESPACE}pause:{name}")
}

fn value_key(name: &str) -> String {
    format!("{NAMESPACE}value:{name}")
}

fn large_key(name: &str) -> String {
    format!("{NAMESPACE}large:{name}")
}

/// Key of the names of large values, sorted by the end of their lifetime.
fn large_names_key() -> String {
    format!("{NAMESPACE}large_names")
}

/// First byte of a value.
const VALUE: u8 = b'v';

/// Mark in the place of a dropped value: a number unlike any other node's. Empty if nothing was dropped.
fn mark(absence: Absence) -> String {
    match absence {
        Absence(0) => String::new(),
        Absence(number) => format!("dropped {number}"),
    }
}

fn read_mark(mark: &[u8]) -> Option<Absence> {
    let number = str::from_utf8(mark).ok()?.strip_prefix("dropped ")?;
    number.parse().ok().map(Absence)
}

/// Packs a record for the script: requests per minute (0 without a limit), bytes of the user's id, that id, and the
/// payload. The result is never empty, since the script returns an empty string for a revoked record.
fn pack(record: &CredentialRecord) -> Vec<u8> {
    let limit = record.rate.map_or(0, |rate| rate.per_minute.get());
    let mut packed = format!("{limit} {} {}", record.user_id.len(), record.user_id).into_bytes();
    packed.extend_from_slice(record.payload.bytes());
    packed
}

fn unpack(packed: &[u8]) -> Option<CredentialRecord> {
    let mut parts = packed.splitn(3, |&byte| byte == b' ');
    let mut number = || str::from_utf8(parts.next()?).ok()?.parse::<u32>().ok();
    let (limit, length) = (number()?, number()?);
    let (user_id, payload) = parts.next()?.split_at_checked(length as usize)?;
    Some(CredentialRecord {
        user_id: str::from_utf8(user_id).ok()?.to_owned(),
        rate: limit.try_into().ok().map(Rate::per_minute),
        payload: payload.to_owned().into(),
    })
}

/// A rate decision as scripts return it.
type RawRateDecision = (u8, u32, u32, u64, u64);

fn decision((allowed, limit, remaining, reset_us, retry_us): RawRateDecision) -> RateDecision {
    RateDecision {
        allowed: allowed == 1,
        limit,
        remaining,
        reset_after: Duration::from_micros(reset_us),
        retry_after: Duration::from_micros(retry_us),
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}
