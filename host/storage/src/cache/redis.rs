//! The cache in Redis, behind a breaker.
//!
//! One connection carries all commands. If it fails, weir drops it: commands are refused at once, while a background
//! task tries to reconnect and write, four times a second. The task also writes on a good connection each second, so
//! that an idle gateway notices an outage as well. A server that answers and refuses writes is an outage: out of memory,
//! without a disk or its replicas, a replica, or a user without rights.
//!
//! Every atomic operation is a script in `scripts/`. In a cluster, all keys are in one hash slot, because a script finds
//! the user's bucket in the record. Redis must not evict unexpired keys (`maxmemory-policy noeviction`, or enough
//! memory), or the cache loses counts and lockouts.
//!
//! Work that no request waits for is collected and sent in batches, 20 ms later: dropped values, and what a request
//! adds to limits after its end.
//!
//! A second connection hears of ended records and of changes that nodes announce. It pings the server, because a lost
//! connection may stay silent.
//!
//! After connecting, a node compares the server's own id with the id that began the epoch. The id changes on a
//! failover and on every restart of a server; a different id begins another epoch. After a flush, the next request
//! begins one.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::StreamExt;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, FromRedisValue, Msg, RedisError,
    RedisResult, Script, ScriptInvocation, ServerErrorKind,
};
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use super::keys::Keys;
use super::leases::{self, Leases, Share};
use super::rare_log::RareLog;
use super::records::Records;
use super::servers::{Servers, in_time};
use super::{
    Absence, Bucket, CacheError, CachedValue, CallerFindings, CallerLookup, CredentialRecord,
    Epoch, FillResult, KnownRecord, Lockout, LockoutPolicy, MAX_LOCKOUTS, Rate, RateDecision,
    RecordKey, RecordLookup, Tombstone,
};
use crate::clock::Clock;
use crate::ids;
use crate::secrets::SecretUrl;

/// Default time limit of a command, including the loading of its script.
pub(super) const TIMEOUT: Duration = Duration::from_millis(250);

/// Time between two attempts to connect during an outage.
const PROBE_EVERY: Duration = Duration::from_millis(250);

/// Time between two writes that prove a connection.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Time between two pings that prove a subscription. With the time limit of a ping, a node knows within a second that
/// it does not hear of revocations.
const PING_EVERY: Duration = Duration::from_millis(500);

/// Time for which work is collected before it is sent.
const COLLECT_FOR: Duration = Duration::from_millis(20);

/// Maximum number of limits that one script charges, and of values that one pipeline drops.
const BATCH: usize = 200;

/// Time limit to find the server of weir's keys, and then to connect to it. No request waits for it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time limit for the first response.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Queue of commands to be sent; further commands wait for room. The library's default of 50 fills up under load.
const SEND_QUEUE: usize = 1_024;

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
    servers: Servers,
    keys: Keys,
    /// `None` while the breaker is open.
    connection: RwLock<Option<NumberedConnection>>,
    /// Log lines of outages and of refused commands.
    outages: RareLog,
    refusals: RareLog,
    broken: Notify,
    records: Records,
    leases: Leases,
    collected: Mutex<Collected>,
    /// The turn to send it.
    sending: tokio::sync::Mutex<()>,
    /// The number of announced changes.
    changes: watch::Sender<u64>,
    identify: Script,
    fill: Script,
    probe: Script,
    look_at_epoch: Script,
    bury: Script,
    count: Script,
    count_failure: Script,
    lockouts: Script,
    keep_value: Script,
    put_large: Script,
    replace_versioned: Script,
}

/// Work that no request waits for.
#[derive(Default)]
struct Collected {
    /// The names of dropped values, with the lifetimes of their marks.
    dropped: HashMap<String, Duration>,
    /// The names of dropped values that are being sent.
    sending: HashSet<String>,
    /// The rates of buckets, and what to add to them.
    charges: HashMap<String, (Rate, u32)>,
    /// Whether a task waits to send it.
    is_scheduled: bool,
}

/// A new connection to the server that holds weir's keys.
struct Connected {
    client: Client,
    address: ConnectionAddr,
    connection: MultiplexedConnection,
    /// The server's own id.
    server: Arc<str>,
}

/// A connection and its number: a late failure of one connection does not drop the next.
#[derive(Clone)]
struct NumberedConnection {
    number: u64,
    connection: MultiplexedConnection,
    /// The server's own id.
    server: Arc<str>,
    address: ConnectionAddr,
    _listener: Arc<AbortOnDropHandle<()>>,
}

impl RedisCache {
    pub(super) async fn open(
        url: &SecretUrl,
        clock: &Clock,
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        let shared = RedisState::new(url, clock, timeout)
            .with_context(|| format!("opening the cache {url}"))?;
        let until = Instant::now() + START_TIMEOUT;
        let connected = loop {
            match shared.connect().await {
                Ok(connected) => break connected,
                Err(error) if is_outage(&error) && Instant::now() < until => {
                    tokio::time::sleep(PROBE_EVERY).await;
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("opening the cache {url}"));
                }
            }
        };
        let shared = Arc::new(shared);
        shared.set(0, connected);
        let keeper = tokio::spawn(keep_connected(Arc::downgrade(&shared)));
        Ok(Self {
            shared,
            _keeper: Arc::new(AbortOnDropHandle::new(keeper)),
        })
    }

    pub(super) async fn probe(url: &SecretUrl) -> anyhow::Result<()> {
        RedisState::new(url, &Clock::System, TIMEOUT)?
            .connect()
            .await?;
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

    pub(super) fn recall(&self, key: RecordKey<'_>) -> Option<KnownRecord> {
        self.shared.records.find(key)
    }

    pub(super) async fn identify(
        &self,
        request: &CallerLookup<'_>,
    ) -> Result<CallerFindings, CacheError> {
        let beginning = self.shared.records.begin();
        let mut script = self.shared.identify.prepare_invoke();
        let keys = self.shared.keys;
        let address = request.address.map_or("", |(address, _)| address);
        let key = request.record.unwrap_or(RecordKey { secret: "", id: "" });
        script
            .key(keys.lockout(address))
            .key(keys.bucket(Bucket::Address(address)))
            .key(keys.record(key))
            .key(keys.tombstone(Tombstone::Record(key.id)))
            .key(keys.epoch())
            .arg(request.address.map_or(0, |(_, rate)| rate.per_minute.get()))
            .arg(request.address.map_or(0, |(_, rate)| rate.of_strangers()))
            .arg(keys.bucket(Bucket::User("")))
            .arg(keys.tombstone(Tombstone::User("")))
            .arg(&*self.shared.server())
            .arg(u8::from(request.record.is_some()));
        type Found = (
            u64,
            Option<RawRateDecision>,
            Option<Vec<u8>>,
            Option<RawRateDecision>,
            bool,
            u64,
        );
        let (blocked_ms, address, record, user, doubtful, epoch): Found = self.run(&script).await?;
        let record = match record {
            None => RecordLookup::Missing,
            Some(packed) if packed.is_empty() => RecordLookup::Revoked,
            Some(_) if doubtful => RecordLookup::Doubtful,
            Some(packed) => RecordLookup::Found(unpack(&packed).ok_or(CacheError::Unexpected)?),
        };
        let epoch = Epoch(epoch);
        if let (Some(key), Some(beginning), RecordLookup::Found(record)) =
            (request.record, beginning, &record)
        {
            let record = Arc::new(record.clone());
            let known = KnownRecord { record, epoch };
            self.shared.records.keep(beginning, key, known);
        }
        Ok(CallerFindings {
            locked_out: (blocked_ms > 0).then(|| Duration::from_millis(blocked_ms)),
            address: Option::map(address, decision),
            record,
            user: Option::map(user, decision),
            epoch,
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
            .key(self.shared.keys.record(key))
            .key(self.shared.keys.tombstone(Tombstone::Record(key.id)))
            .key(self.shared.keys.tombstone(Tombstone::User(&record.user_id)))
            .key(self.shared.keys.epoch())
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
        let mut script = self.shared.bury.prepare_invoke();
        script
            .key(self.shared.keys.tombstone(tombstone))
            .arg(millis(ttl))
            .arg(self.shared.keys.ended_channel())
            .arg(announcement(tombstone));
        let buried = self.run(&script).await;
        // A lookup before the tombstone may have ended only now.
        self.shared.records.end(tombstone);
        buried
    }

    pub(super) async fn count_failure(
        &self,
        address: &str,
        policy: LockoutPolicy,
    ) -> Result<Option<Duration>, CacheError> {
        let mut script = self.shared.count_failure.prepare_invoke();
        script
            .key(self.shared.keys.lockout(address))
            .key(self.shared.keys.failures(address))
            .key(self.shared.keys.lockouts())
            .key(self.shared.keys.failing())
            .arg(policy.failures.get())
            .arg(millis(policy.window) * 1_000)
            .arg(millis(policy.block))
            .arg(address)
            .arg(self.shared.keys.failures(""))
            .arg(MAX_LOCKOUTS);
        let blocked_ms: u64 = self.run(&script).await?;
        Ok((blocked_ms > 0).then(|| Duration::from_millis(blocked_ms)))
    }

    pub(super) async fn lockouts(&self, most: usize) -> Result<Vec<Lockout>, CacheError> {
        let mut script = self.shared.lockouts.prepare_invoke();
        script
            .key(self.shared.keys.lockouts())
            .arg(most)
            .arg(self.shared.keys.lockout(""));
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
            .del(self.shared.keys.lockout(address))
            .del(self.shared.keys.failures(address))
            .ignore()
            .zrem(self.shared.keys.lockouts(), address)
            .ignore()
            .zrem(self.shared.keys.failing(), address)
            .ignore();
        let (cleared,): (u32,) = self
            .call(async |connection| commands.query_async(connection).await)
            .await?;
        Ok(cleared > 0)
    }

    pub(super) async fn count(
        &self,
        limits: &[(Bucket<'_>, Rate)],
    ) -> Result<Vec<RateDecision>, CacheError> {
        let leases = &self.shared.leases;
        let now = leases.now();
        let counted: Vec<_> = limits
            .iter()
            .map(|&(bucket, rate)| {
                let name = self.shared.keys.bucket(bucket);
                let share = leases.take(&name, rate, now);
                (name, rate, share)
            })
            .collect();
        let asked: Vec<_> = counted
            .iter()
            .filter_map(|(name, rate, share)| match share {
                Share::Leased(_) => None,
                Share::Wanted(more) => Some((&**name, *rate, *more)),
            })
            .collect();
        let decided = match asked[..] {
            [] => Ok(Vec::new()),
            _ => self.count_in_redis(&asked).await,
        };
        let is_allowed = decided
            .as_ref()
            .is_ok_and(|decided| decided.iter().all(|(decision, _)| decision.allowed));
        let mut decided = decided.map(Vec::into_iter);
        let mut decisions = Vec::with_capacity(counted.len());
        for (name, _, share) in &counted {
            decisions.push(match share {
                Share::Leased(decision) => {
                    if !is_allowed {
                        leases.give_back(name, now);
                    }
                    *decision
                }
                Share::Wanted(more) => {
                    let decided = decided.as_mut().ok().map(Iterator::next);
                    let (decision, leased) = match decided {
                        Some(Some(decided)) => decided,
                        Some(None) => return Err(CacheError::Unexpected),
                        None => continue,
                    };
                    if *more > 0 {
                        leases.keep(name, leased, decision, now);
                    }
                    decision
                }
            });
        }
        decided.map(|_| decisions)
    }

    /// Counts a request in limits, and leases more requests of them. Returns the decisions and the numbers of leased
    /// requests.
    async fn count_in_redis(
        &self,
        asked: &[(&str, Rate, u32)],
    ) -> Result<Vec<(RateDecision, u32)>, CacheError> {
        let mut script = self.shared.count.prepare_invoke();
        script.arg(1).arg(millis(leases::LIFETIME));
        for &(name, rate, more) in asked {
            let charged = self.shared.collected().charges.remove(name);
            add_limit(&mut script, name, rate, charged.map_or(0, |(_, n)| n), more);
        }
        type RawCount = (u8, u32, u32, u64, u64, u32);
        let counted: Vec<RawCount> = self.run(&script).await?;
        let counted = counted.into_iter();
        let counted = counted.map(|(allowed, limit, remaining, reset_us, retry_us, leased)| {
            let raw = (allowed, limit, remaining, reset_us, retry_us);
            (decision(raw), leased)
        });
        Ok(counted.collect())
    }

    pub(super) fn charge(&self, bucket: Bucket<'_>, rate: Rate, number: u32) {
        let mut collected = self.shared.collected();
        let charge = collected.charges.entry(self.shared.keys.bucket(bucket));
        let (of, charged) = charge.or_insert((rate, 0));
        *of = rate;
        *charged = charged.saturating_add(number);
        self.schedule(&mut collected);
    }

    pub(super) async fn find_value(&self, name: &str) -> Result<CachedValue, CacheError> {
        self.send_drop(name).await?;
        let mut command = redis::cmd("GET");
        command.arg(self.shared.keys.value(name));
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
        self.send_drop(name).await?;
        let mut script = self.shared.keep_value.prepare_invoke();
        script
            .key(self.shared.keys.value(name))
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
            .arg(self.shared.keys.value(name))
            .arg([&[VALUE], value].concat())
            .arg("PX")
            .arg(millis(ttl));
        self.call(async |connection| command.query_async(connection).await)
            .await
    }

    pub(super) async fn find_large(&self, name: &str) -> Result<Option<Arc<[u8]>>, CacheError> {
        let mut command = redis::cmd("GET");
        command.arg(self.shared.keys.large(name));
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
            .key(self.shared.keys.large(name))
            .key(self.shared.keys.large_names())
            .arg(value)
            .arg(millis(ttl))
            .arg(name)
            .arg(self.shared.keys.large(""))
            .arg(most);
        self.run(&script).await
    }

    pub(super) async fn pause(&self, name: &str, time: Duration) -> Result<(), CacheError> {
        let mut command = redis::cmd("SET");
        command
            .arg(self.shared.keys.pause(name))
            .arg("")
            .arg("PX")
            .arg(millis(time).max(1));
        self.call(async |connection| command.query_async(connection).await)
            .await
    }

    pub(super) async fn resume(&self, name: &str) -> Result<(), CacheError> {
        let mut command = redis::cmd("DEL");
        command.arg(self.shared.keys.pause(name));
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
            commands.cmd("PTTL").arg(self.shared.keys.pause(name));
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
            .arg(self.shared.keys.value(name))
            .arg(mark(Absence(ids::unlike_any_other())))
            .arg("PX")
            .arg(millis(ttl));
        self.call(async |connection| command.query_async(connection).await)
            .await
    }

    pub(super) fn drop_value_soon(&self, name: &str, ttl: Duration) {
        let mut collected = self.shared.collected();
        collected.dropped.insert(name.to_owned(), ttl);
        self.schedule(&mut collected);
    }

    /// Sends the drop of a value, if this node has not yet done so.
    async fn send_drop(&self, name: &str) -> Result<(), CacheError> {
        let is_dropped = {
            let collected = self.shared.collected();
            collected.dropped.contains_key(name) || collected.sending.contains(name)
        };
        if !is_dropped {
            return Ok(());
        }
        let cache = self.clone();
        // A caller that stops waiting must not stop the work of others.
        let sent = tokio::spawn(async move { cache.send_collected().await });
        sent.await.map_err(|_| CacheError::Unavailable)?
    }

    /// Sends the collected work soon.
    fn schedule(&self, collected: &mut Collected) {
        if !std::mem::replace(&mut collected.is_scheduled, true) {
            let cache = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(COLLECT_FOR).await;
                // The cache logs its errors: a value then expires after its lifetime, and a charge is lost.
                let _ = cache.send_collected().await;
            });
        }
    }

    /// Sends the collected work.
    async fn send_collected(&self) -> Result<(), CacheError> {
        let _turn = self.shared.sending.lock().await;
        let (dropped, charges) = {
            let mut collected = self.shared.collected();
            collected.is_scheduled = false;
            let dropped = std::mem::take(&mut collected.dropped);
            collected.sending = dropped.keys().cloned().collect();
            (dropped, std::mem::take(&mut collected.charges))
        };
        let sent = self.send(dropped, charges).await;
        self.shared.collected().sending.clear();
        sent
    }

    async fn send(
        &self,
        dropped: HashMap<String, Duration>,
        charges: HashMap<String, (Rate, u32)>,
    ) -> Result<(), CacheError> {
        let dropped: Vec<_> = dropped.into_iter().collect();
        for batch in dropped.chunks(BATCH) {
            let mut commands = redis::pipe();
            for (name, ttl) in batch {
                let absent = mark(Absence(ids::unlike_any_other()));
                let set = commands
                    .cmd("SET")
                    .arg(self.shared.keys.value(name))
                    .arg(absent);
                set.arg("PX").arg(millis(*ttl)).ignore();
            }
            self.call(async |connection| commands.query_async::<()>(connection).await)
                .await?;
        }
        let charges: Vec<_> = charges.into_iter().collect();
        for batch in charges.chunks(BATCH) {
            let mut script = self.shared.count.prepare_invoke();
            script.arg(0).arg(millis(leases::LIFETIME));
            for (name, (rate, charged)) in batch {
                add_limit(&mut script, name, *rate, *charged, 0);
            }
            self.run::<()>(&script).await?;
        }
        Ok(())
    }

    /// Returns a value and the version stored before it.
    pub(crate) async fn find_versioned(
        &self,
        name: &str,
    ) -> Result<Option<(u64, Vec<u8>)>, CacheError> {
        let mut command = redis::cmd("GET");
        command.arg(self.shared.keys.versioned(name));
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
            .key(self.shared.keys.versioned(name))
            .arg(before.as_ref().map_or(&[][..], |before| &before[..]))
            .arg([&version.to_be_bytes(), value].concat())
            .arg(millis(ttl));
        self.run(&script).await
    }

    pub(crate) async fn remove_versioned(&self, name: &str) -> Result<bool, CacheError> {
        let mut command = redis::cmd("DEL");
        command.arg(self.shared.keys.versioned(name));
        self.call(async |connection| command.query_async(connection).await)
            .await
    }

    pub(super) async fn announce(&self) -> Result<(), CacheError> {
        let mut command = redis::cmd("PUBLISH");
        command.arg(self.shared.keys.changes_channel()).arg("");
        self.call(async |connection| command.query_async(connection).await)
            .await
    }

    pub(super) fn announcements(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
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

impl fmt::Debug for RedisCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RedisCache({})", self.shared.url)
    }
}

impl RedisState {
    fn new(url: &SecretUrl, clock: &Clock, timeout: Duration) -> RedisResult<Self> {
        let servers = Servers::of(url)?;
        let script = |code: &str| Script::new(&[include_str!("scripts/rate.lua"), code].concat());
        Ok(Self {
            url: url.clone(),
            timeout,
            keys: Keys {
                namespace: servers.namespace(),
            },
            servers,
            connection: RwLock::new(None),
            outages: RareLog::default(),
            refusals: RareLog::default(),
            broken: Notify::new(),
            records: Records::new(clock.clone()),
            leases: Leases::new(clock.clone()),
            collected: Mutex::default(),
            sending: tokio::sync::Mutex::default(),
            changes: watch::Sender::default(),
            identify: script(include_str!("scripts/identify.lua")),
            fill: Script::new(include_str!("scripts/fill.lua")),
            probe: Script::new(include_str!("scripts/probe.lua")),
            look_at_epoch: script(include_str!("scripts/look_at_epoch.lua")),
            bury: Script::new(include_str!("scripts/bury.lua")),
            count: script(include_str!("scripts/count.lua")),
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
            if let Some(times) = self.outages.count() {
                tracing::error!(redis = %self.url, times, "Redis is unavailable, and commands are refused");
            }
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

    /// Drops the connection if another server holds weir's keys now. The old one may still accept writes, cut off from
    /// those that elected another.
    async fn check_server(&self) {
        let Some(current) = self.get() else { return };
        // Without an answer, the connection stays in use as long as it works.
        if let Ok(server) = self.servers.find(self.timeout).await
            && *server.addr() != current.address
        {
            let why = RedisError::from((ErrorKind::Io, "another server is the master"));
            self.open_breaker(current.number, &why);
        }
    }

    async fn write(&self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        let mut probe = self.probe.prepare_invoke();
        probe.key(self.keys.probe());
        probe.invoke_async(connection).await
    }

    /// Connects and proves that the server accepts writes: a read-only replica would respond as well.
    async fn connect(&self) -> RedisResult<Connected> {
        let server = self.servers.find(CONNECT_TIMEOUT).await?;
        let server = server.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let address = server.addr().clone();
        let client = Client::open(server)?;
        let config = AsyncConnectionConfig::new()
            .set_pipeline_buffer_size(SEND_QUEUE)
            // The time-outs cover complete calls; the library's own are off.
            .set_connection_timeout(None)
            .set_response_timeout(None);
        in_time(CONNECT_TIMEOUT, async {
            let mut connection = client
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
            Ok(Connected {
                client,
                address,
                connection,
                server,
            })
        })
        .await
    }

    fn look_at_epoch(&self, server: &str, begin: bool) -> ScriptInvocation<'_> {
        let mut look = self.look_at_epoch.prepare_invoke();
        look.key(self.keys.epoch())
            .arg(server)
            .arg(u8::from(begin))
            .arg(self.keys.ended_channel())
            .arg(EPOCH_BEGUN);
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
            self.records.close();
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

    /// Begins to use a connection, and to listen to announcements of its server.
    fn set(self: &Arc<Self>, number: u64, connected: Connected) {
        let Connected {
            client,
            address,
            connection,
            server,
        } = connected;
        let listener = tokio::spawn(listen(Arc::downgrade(self), client, number));
        let connection = NumberedConnection {
            number,
            connection,
            server,
            address,
            _listener: Arc::new(AbortOnDropHandle::new(listener)),
        };
        *self
            .connection
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(connection);
    }

    fn collected(&self) -> MutexGuard<'_, Collected> {
        self.collected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn subscribe(&self, client: &Client) -> RedisResult<(PubSubSink, PubSubStream)> {
        in_time(self.timeout, async {
            let mut connection = client.get_async_pubsub().await?;
            connection
                .subscribe(&[self.keys.changes_channel(), self.keys.ended_channel()])
                .await?;
            Ok(connection.split())
        })
        .await
    }

    /// Keeps records in the process from now on, or drops them all, for the listener of a connection that is still in
    /// use.
    fn keep_records(&self, number: u64, is_subscribed: bool) {
        let current = self
            .connection
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().map(|current| current.number) == Some(number) {
            match is_subscribed {
                true => self.records.open(),
                false => self.records.close(),
            }
        }
    }

    fn hear(&self, message: &Msg) {
        if message.get_channel_name() == self.keys.changes_channel() {
            self.changes.send_modify(|number| *number += 1);
        } else if message.get_payload_bytes() == EPOCH_BEGUN.as_bytes() {
            self.records.clear();
        } else if let Some(ended) = read_announcement(message.get_payload_bytes()) {
            self.records.end(ended);
        }
    }
}

/// Listens to announcements as long as a connection is in use.
async fn listen(shared: Weak<RedisState>, client: Client, number: u64) {
    while let Some(state) = shared.upgrade() {
        // The breaker logs outages. Access rules may forbid the channels; then the process keeps no records.
        if let Ok((sink, mut messages)) = state.subscribe(&client).await {
            state.keep_records(number, true);
            drop(state);
            let hear = async {
                while let Some(message) = messages.next().await
                    && let Some(state) = shared.upgrade()
                {
                    state.hear(&message);
                }
            };
            tokio::select! {
                () = hear => {}
                () = ping(sink) => {}
            }
            let Some(state) = shared.upgrade() else {
                return;
            };
            state.keep_records(number, false);
        } else {
            drop(state);
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
}

/// Returns when the server of a subscription does not respond.
async fn ping(mut sink: PubSubSink) {
    loop {
        tokio::time::sleep(PING_EVERY).await;
        if in_time(TIMEOUT, sink.ping::<()>()).await.is_err() {
            return;
        }
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
                    let (_, ()) = tokio::join!(shared.probe_writes(), shared.check_server());
                }
            }
            continue;
        }
        match shared.connect().await {
            Ok(connected) => {
                number += 1;
                last_failure.clear();
                shared.set(number, connected);
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
                    | ServerErrorKind::Moved
                    | ServerErrorKind::Ask
                    | ServerErrorKind::ReadOnly
            )
    ) || error.code().is_some_and(refuses_writes)
}

/// The message that announces an epoch, in which all records of the process are of an earlier one.
const EPOCH_BEGUN: &str = "epoch";

/// The message that announces a tombstone.
fn announcement(tombstone: Tombstone<'_>) -> String {
    match tombstone {
        Tombstone::Record(id) => format!("record:{id}"),
        Tombstone::User(user_id) => format!("user:{user_id}"),
    }
}

fn read_announcement(message: &[u8]) -> Option<Tombstone<'_>> {
    match str::from_utf8(message).ok()?.split_once(':')? {
        ("record", id) => Some(Tombstone::Record(id)),
        ("user", user_id) => Some(Tombstone::User(user_id)),
        _ => None,
    }
}

/// Key of the number of leased requests of a bucket.
fn leases_key(bucket: &str) -> String {
    format!("{bucket}:leases")
}

/// Adds a limit to a run of `count.lua`: what to charge in any case, and how many requests to lease beside one.
fn add_limit(script: &mut ScriptInvocation<'_>, name: &str, rate: Rate, charged: u32, more: u32) {
    script
        .key(name)
        .key(leases_key(name))
        .arg(rate.per_minute.get())
        .arg(charged)
        .arg(more)
        .arg(leases::most_leased(rate));
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
