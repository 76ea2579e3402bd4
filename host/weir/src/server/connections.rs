//! The connections of a listener, and each address's share of them.
//!
//! A client beyond its share, or without a free slot, replaces an idle connection: of its own address, or of any
//! address. Silent connections therefore lock no other client out, in any number. On HTTP/2 connections, each
//! concurrent request after the first counts as a connection.
//!
//! **Invariant:** a connection with a request that has arrived never makes way for another one.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use hyper::body::Incoming;
use ipnet::IpNet;
use tokio::time::Instant;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::client_address::ClientAddress;

/// Time that a new client has for its first bytes before it counts as silent.
const GRACE: Duration = Duration::from_secs(1);

/// Time for which a new connection is protected from eviction: its request may be on the way.
const ARRIVAL: Duration = Duration::from_millis(250);

/// Time for which a connection is protected from eviction after a response: the client's next request may be on the way,
/// and would stay without a response.
const NEXT_REQUEST: Duration = Duration::from_millis(100);

/// Time for which responses close their connections after a new connection found no slot. A connection that the gateway
/// closes between requests may lose one that its client has sent meanwhile; a response that says so loses none.
const PRESSURE: Duration = Duration::from_secs(1);

/// Requests that a client may cancel on one connection in excess of those whose responses it has received: a cancelled
/// request costs the gateway work, and its sender almost nothing.
const MOST_GIVEN_UP: u32 = 100;

/// The idle time of a connection with a request in progress.
const BUSY: u64 = u64::MAX;

/// The result of a search for a connection that makes way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Eviction {
    /// A connection makes way: now or, if all idle ones are new, as soon as their requests should have arrived.
    MakesWay,
    /// Each connection has a request in progress, or had one within [`NEXT_REQUEST`].
    AllInUse,
    /// Each connection has a request in progress.
    AllBusy,
}

pub(super) struct ListenerConnections {
    per_address: usize,
    trusted_proxies: Vec<IpNet>,
    max_age: Duration,
    started: Instant,
    pressed_until: Arc<AtomicU64>,
    /// Connections by address; those of trusted proxies, which have many clients, under `None`.
    lines: Mutex<HashMap<Option<ClientAddress>, AddressConnections>>,
}

#[derive(Default)]
struct AddressConnections {
    lines: Vec<Arc<ConnectionState>>,
    /// Concurrent requests beyond the first on each connection.
    streams: usize,
}

/// The share that a concurrent request on a connection takes from its address. Dropping it returns the share.
pub(super) struct StreamShare {
    connections: Arc<ListenerConnections>,
    address: Option<ClientAddress>,
}

/// A connection's entry; dropping it removes the entry.
pub(super) struct ConnectionEntry {
    connections: Arc<ListenerConnections>,
    address: Option<ClientAddress>,
    line: Arc<ConnectionState>,
}

pub(super) struct ConnectionState {
    /// The time from which the connection takes no further request.
    pub expires_at: Instant,
    /// The current request's body, if its handler has left some of it unread.
    pub unread: Mutex<Option<Incoming>>,
    /// Requests without a response yet.
    under_way: AtomicU32,
    /// Whether the connection has answered a request.
    has_served: AtomicBool,
    /// Milliseconds of the listener's life, or [`BUSY`].
    idle_since: AtomicU64,
    is_evicted: AtomicBool,
    waker: AtomicWaker,
    started: Instant,
    /// Milliseconds of the listener's life until which new connections lack slots.
    pressed_until: Arc<AtomicU64>,
    /// Requests that the client cancelled, minus those whose responses it has received.
    given_up: AtomicU32,
}

impl ListenerConnections {
    pub(super) fn new(per_address: u32, max_age: Duration, trusted_proxies: &[IpNet]) -> Self {
        Self {
            per_address: per_address as usize,
            trusted_proxies: trusted_proxies.to_vec(),
            max_age,
            started: Instant::now(),
            pressed_until: Arc::default(),
            lines: Mutex::default(),
        }
    }

    /// Enters a connection. `None` if its address has its complete share, with a request in progress on each.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionEntry> {
        self.enter_as(self.address_of(peer))
    }

    /// Enters a connection before its proxy names the client.
    pub(super) fn enter_unnamed(self: &Arc<Self>) -> Option<ConnectionEntry> {
        self.enter_as(None)
    }

    fn enter_as(self: &Arc<Self>, address: Option<ClientAddress>) -> Option<ConnectionEntry> {
        let line = self.unlisted();
        self.list(address, &line).then(|| ConnectionEntry {
            connections: self.clone(),
            address,
            line,
        })
    }

    /// Returns the address under which a peer's connections count; `None` for a trusted proxy.
    fn address_of(&self, peer: IpAddr) -> Option<ClientAddress> {
        let ip = peer.to_canonical();
        let is_proxy = self.trusted_proxies.iter().any(|net| net.contains(&ip));
        (!is_proxy).then(|| ClientAddress::new(ip))
    }

    /// Returns whether the address has room for the connection, if necessary after the eviction of an idle one.
    fn list(&self, address: Option<ClientAddress>, line: &Arc<ConnectionState>) -> bool {
        let mut all = self.lock();
        let of_address = all.entry(address).or_default();
        if address.is_some() && of_address.count() >= self.per_address {
            let Some(index) = longest_idle(&of_address.lines) else {
                return false;
            };
            of_address.lines.swap_remove(index).evict();
        }
        of_address.lines.push(line.clone());
        true
    }

    fn unlist(&self, address: Option<ClientAddress>, line: &Arc<ConnectionState>) {
        self.change(address, |of_address| {
            of_address.lines.retain(|other| !Arc::ptr_eq(other, line));
        });
    }

    fn change(&self, address: Option<ClientAddress>, change: impl FnOnce(&mut AddressConnections)) {
        let mut all = self.lock();
        if let Some(of_address) = all.get_mut(&address) {
            change(of_address);
            if of_address.count() == 0 {
                all.remove(&address);
            }
        }
    }

    /// Returns the state of a connection outside the table.
    pub(super) fn unlisted(&self) -> Arc<ConnectionState> {
        let pressed_until = self.pressed_until.clone();
        Arc::new(ConnectionState::new(
            self.started,
            self.max_age,
            pressed_until,
        ))
    }

    /// Evicts the connection that is idle for longest, unless one is already closing. For a while, connections also end
    /// with their responses.
    pub(super) fn evict_one(&self) -> Eviction {
        let until = millis(self.started, Instant::now() + PRESSURE);
        self.pressed_until.store(until, Ordering::Relaxed);
        let all = self.lock();
        let mut lines = all.values().flat_map(|of_address| &of_address.lines);
        if lines.any(|line| line.is_leaving()) {
            return Eviction::MakesWay;
        }
        let idle = all.values().filter_map(|AddressConnections { lines, .. }| {
            longest_idle(lines).map(|index| &lines[index])
        });
        let now = Instant::now();
        let Some(first) = idle.min_by_key(|line| line.order(now)) else {
            return Eviction::AllBusy;
        };
        if first.has_served() && first.idle_ms(now) < NEXT_REQUEST.as_millis() {
            return Eviction::AllInUse;
        }
        if !first.is_newer_than(ARRIVAL, now) {
            first.evict();
        }
        Eviction::MakesWay
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<ClientAddress>, AddressConnections>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the first to evict: connections that never served a request, then the longest idle ones, and new ones last.
fn longest_idle(lines: &[Arc<ConnectionState>]) -> Option<usize> {
    let now = Instant::now();
    let idle = lines.iter().enumerate().filter(|(_, line)| line.is_idle());
    idle.min_by_key(|(_, line)| line.order(now))
        .map(|(index, _)| index)
}

impl AddressConnections {
    fn count(&self) -> usize {
        self.lines.len() + self.streams
    }
}

impl ConnectionEntry {
    pub(super) fn line(&self) -> &Arc<ConnectionState> {
        &self.line
    }

    /// Counts the connection for the client that its proxy names. `false` if that client has its complete share.
    pub(super) fn name(&mut self, client: IpAddr) -> bool {
        self.connections.unlist(self.address, &self.line);
        self.address = self.connections.address_of(client);
        self.connections.list(self.address, &self.line)
    }

    /// Takes the share of a concurrent request; `None` if the address has its complete share.
    pub(super) fn take_stream(&self) -> Option<StreamShare> {
        let connections = &self.connections;
        let mut all = connections.lock();
        let of_address = all.entry(self.address).or_default();
        if self.address.is_some() && of_address.count() >= connections.per_address {
            return None;
        }
        of_address.streams += 1;
        Some(StreamShare {
            connections: connections.clone(),
            address: self.address,
        })
    }
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        self.connections.unlist(self.address, &self.line);
    }
}

impl Drop for StreamShare {
    fn drop(&mut self) {
        self.connections
            .change(self.address, |of_address| of_address.streams -= 1);
    }
}

impl ConnectionState {
    fn new(started: Instant, max_age: Duration, pressed_until: Arc<AtomicU64>) -> Self {
        let now = Instant::now();
        Self {
            expires_at: now + max_age,
            unread: Mutex::default(),
            under_way: AtomicU32::new(0),
            has_served: AtomicBool::new(false),
            idle_since: AtomicU64::new(millis(started, now)),
            is_evicted: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            started,
            pressed_until,
            given_up: AtomicU32::new(0),
        }
    }

    /// Adds requests that arrived. Returns the number of requests in progress before.
    pub(super) fn begin(&self, requests: u32) -> u32 {
        let before = self.under_way.fetch_add(requests, Ordering::Relaxed);
        self.idle_since.store(BUSY, Ordering::Relaxed);
        before
    }

    /// Removes a request whose response body is complete. Returns whether it was the last one.
    pub(super) fn end(&self) -> bool {
        let before = self.under_way.fetch_sub(1, Ordering::Relaxed);
        self.has_served.store(true, Ordering::Relaxed);
        before == 1
    }

    /// Counts a cancelled request, or one whose response the client has received. Returns whether the client cancels
    /// too many.
    pub(super) fn note_end(&self, is_heard: bool) -> bool {
        let count = &self.given_up;
        if is_heard {
            if count.load(Ordering::Relaxed) > 0 {
                count.fetch_sub(1, Ordering::Relaxed);
            }
            return false;
        }
        count.fetch_add(1, Ordering::Relaxed) >= MOST_GIVEN_UP
    }

    /// Returns whether all requests are answered.
    pub(super) fn is_answered(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) == 0
    }

    /// Marks all responses as flushed.
    pub(super) fn rest(&self) {
        let now = millis(self.started, Instant::now());
        self.idle_since.store(now, Ordering::Relaxed);
    }

    /// Returns whether the connection has answered a request.
    pub(super) fn has_served(&self) -> bool {
        self.has_served.load(Ordering::Relaxed)
    }

    /// Returns whether the connection is evicted; wakes this task at the eviction.
    pub(super) fn is_evicted(&self, waker: &Waker) -> bool {
        self.waker.register(waker);
        self.is_evicted.load(Ordering::Acquire)
    }

    /// Completes when the connection is evicted.
    pub(super) async fn evicted(&self) {
        poll_fn(|context| match self.is_evicted(context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Returns the time from which the connection is idle; `None` while a request is in progress.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        match self.idle_since.load(Ordering::Relaxed) {
            BUSY => None,
            millis => Some(self.started + Duration::from_millis(millis)),
        }
    }

    /// Evicts the connection: it ends once no request is in progress.
    pub(super) fn evict(&self) {
        self.is_evicted.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Returns whether the connection ends after its current request.
    pub(super) fn makes_way(&self) -> bool {
        let now = millis(self.started, Instant::now());
        self.is_evicted.load(Ordering::Relaxed) || now < self.pressed_until.load(Ordering::Relaxed)
    }

    fn is_idle(&self) -> bool {
        let is_evicted = self.is_evicted.load(Ordering::Relaxed);
        !is_evicted && self.idle_since.load(Ordering::Relaxed) != BUSY
    }

    /// Returns whether the connection is evicted and idle.
    fn is_leaving(&self) -> bool {
        let is_evicted = self.is_evicted.load(Ordering::Relaxed);
        is_evicted && self.idle_since.load(Ordering::Relaxed) != BUSY
    }

    /// Sorts idle connections: the first one makes way first, a new one last.
    fn order(&self, now: Instant) -> (bool, bool, u64) {
        let idle_since = self.idle_since.load(Ordering::Relaxed);
        (
            self.is_newer_than(GRACE, now),
            self.has_served(),
            idle_since,
        )
    }

    /// Returns whether the connection is newer than this age and has not served a request.
    fn is_newer_than(&self, age: Duration, now: Instant) -> bool {
        !self.has_served() && self.idle_ms(now) < age.as_millis()
    }

    /// Returns the time for which the connection is idle, in milliseconds.
    fn idle_ms(&self, now: Instant) -> u128 {
        let idle_since = self.idle_since.load(Ordering::Relaxed);
        millis(self.started, now).saturating_sub(idle_since).into()
    }
}

fn millis(since: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(since).as_millis()).unwrap_or(BUSY - 1)
}

/// Returns the error for a client beyond its address's share.
pub(super) fn too_many() -> ApiError {
    ApiError::new(
        ErrorCode::TooManyConnections,
        "Your address has its maximum number of connections, with a request in progress on each; try again shortly.",
    )
    .with_retry_after(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn is_evicted(entry: &ConnectionEntry) -> bool {
        entry.line.is_evicted(Waker::noop())
    }

    #[test]
    fn an_address_has_its_share_and_a_proxy_has_none() {
        let proxies = ["10.0.0.0/8".parse().expect("a network")];
        let connections = Arc::new(ListenerConnections::new(2, HOUR, &proxies));
        let enter = |from: &str| connections.enter(ip(from));
        let (first, second) = (enter("::ffff:192.0.2.1"), enter("192.0.2.1"));
        let (first, second) = (first.expect("a place"), second.expect("a place"));
        first.line.begin(1);
        // The new connection replaces the idle one.
        let third = enter("192.0.2.1").expect("a place");
        assert!(is_evicted(&second) && !is_evicted(&first));
        third.line.begin(1);
        assert!(enter("192.0.2.1").is_none());
        assert!(enter("192.0.2.2").is_some());
        // The new connection takes the slot of the closed one.
        drop(third);
        assert!(enter("192.0.2.1").is_some());
        // An IPv6 network counts as one client.
        let rows: Vec<_> = (1..=2).map(|n| enter(&format!("2001:db8::{n}"))).collect();
        for entry in rows.iter().flatten() {
            entry.line.begin(1);
        }
        assert!(enter("2001:db8::3").is_none() && enter("2001:db8:0:1::").is_some());
        let many: Vec<_> = (0..9).filter_map(|_| enter("10.0.0.1")).collect();
        assert_eq!(many.len(), 9);
        drop((first, second, rows, many));
        assert!(connections.lock().is_empty());
    }

    #[test]
    fn what_one_of_many_requests_on_a_connection_takes_counts_as_a_connection() {
        let connections = Arc::new(ListenerConnections::new(3, HOUR, &[]));
        let first = connections.enter(ip("192.0.2.1")).expect("a place");
        first.line.begin(3);
        let streams = [first.take_stream(), first.take_stream()];
        assert!(streams.iter().all(Option::is_some) && first.take_stream().is_none());
        assert!(connections.enter(ip("192.0.2.1")).is_none());
        let mut other = connections.enter_unnamed().expect("a place");
        assert!(!other.name(ip("192.0.2.1")));
        drop(other);
        let mut other = connections.enter_unnamed().expect("a place");
        assert!(other.name(ip("192.0.2.2")));
        let streams_of_other = [
            other.take_stream(),
            other.take_stream(),
            other.take_stream(),
        ];
        assert!(streams_of_other[1].is_some() && streams_of_other[2].is_none());
        drop((streams, first, streams_of_other, other));
        assert!(connections.lock().is_empty());
    }

    #[test]
    fn who_gives_up_no_more_than_they_hear_may_go_on() {
        let line = ConnectionState::new(Instant::now(), HOUR, Arc::default());
        for _ in 0..1_000 {
            assert!(!line.note_end(false) && !line.note_end(true));
        }
        let mut given_up = 1;
        while !line.note_end(false) {
            given_up += 1;
        }
        assert_eq!(given_up, MOST_GIVEN_UP + 1);
    }

    #[test]
    fn who_was_of_use_stays_longer() {
        let mut connections = ListenerConnections::new(9, HOUR, &[]);
        connections.started -= 2 * GRACE;
        let connections = Arc::new(connections);
        let entries =
            ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|from| connections.enter(ip(from)));
        let [served, silent, busy] = entries.map(|entry| entry.expect("a place"));
        for line in [&served.line, &busy.line] {
            line.begin(1);
        }
        served.line.end();
        served.line.rest();
        silent.line.idle_since.store(0, Ordering::Relaxed);
        connections.evict_one();
        connections.evict_one();
        assert!(is_evicted(&silent) && !is_evicted(&served));
        // The busy connection ends with its response.
        assert!(busy.line.makes_way() && !is_evicted(&busy));
        // Only one connection makes way at a time.
        drop(silent);
        // A new connection is not silent yet.
        let new = connections.enter(ip("192.0.2.4")).expect("a place");
        // The next request of a client that has just got a response may be on the way.
        assert_eq!(connections.evict_one(), Eviction::AllInUse);
        assert!(!is_evicted(&served));
        served.line.idle_since.store(0, Ordering::Relaxed);
        assert_eq!(connections.evict_one(), Eviction::MakesWay);
        assert!(is_evicted(&served) && !is_evicted(&new));
        drop(served);
        // The request of a new connection may be on the way.
        assert_eq!(connections.evict_one(), Eviction::MakesWay);
        assert!(!is_evicted(&new));
        new.line.idle_since.store(0, Ordering::Relaxed);
        assert_eq!(connections.evict_one(), Eviction::MakesWay);
        assert!(is_evicted(&new));
        drop(new);
        assert_eq!(connections.evict_one(), Eviction::AllBusy);
        assert!(!is_evicted(&busy) && connections.lock().len() == 1);
    }
}
