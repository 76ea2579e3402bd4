//! The connections of a listener, and each address's share of them.
//!
//! Who has its share, or finds none left, takes the place of a connection that nothing is under way on: of its own address, or of
//! any. So connections that say nothing keep nobody out, however many there are. Of HTTP/2, where one connection has many
//! requests under way, each beyond the first counts as a connection does.
//!
//! **Invariant:** a request that has arrived is never given up for another connection.

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

use crate::identity::client_address::ClientAddress;

/// How long a client that has just connected has for its first bytes before it counts as silent.
const GRACE: Duration = Duration::from_secs(1);

/// How long a client that has just connected is left alone, whoever else wants a place: its request may be on its way.
const ARRIVAL: Duration = Duration::from_millis(250);

/// Requests that a client may give up on one connection beside as many that it hears the answers of: each has been begun, and
/// costs next to nothing to give up.
const MOST_GIVEN_UP: u32 = 100;

/// The time at which a connection is idle on which something is under way.
const BUSY: u64 = u64::MAX;

/// The connections of a listener.
pub(super) struct Connections {
    per_address: usize,
    trusted_proxies: Vec<IpNet>,
    max_age: Duration,
    started: Instant,
    /// By address; those of trusted proxies, which have many clients, under none.
    lines: Mutex<HashMap<Option<ClientAddress>, OfAddress>>,
}

/// What an address has.
#[derive(Default)]
struct OfAddress {
    lines: Vec<Arc<Line>>,
    /// Requests under way beside those that its connections count for.
    streams: usize,
}

/// The part of its address's share that one of several requests on a connection takes. Given back when dropped.
pub(super) struct StreamShare {
    connections: Arc<Connections>,
    address: Option<ClientAddress>,
}

/// A connection's entry, which ends with it.
pub(super) struct Entry {
    connections: Arc<Connections>,
    address: Option<ClientAddress>,
    line: Arc<Line>,
}

/// What is known of one connection.
pub(super) struct Line {
    /// From when on it takes no further request.
    pub expires_at: Instant,
    /// The body of the request under way, if its handler has left some of it unread.
    pub unread: Mutex<Option<Incoming>>,
    /// Requests that have arrived and are not answered.
    under_way: AtomicU32,
    /// Whether any was answered.
    has_served: AtomicBool,
    /// Milliseconds of the listener's life, or [`BUSY`].
    idle_since: AtomicU64,
    is_evicted: AtomicBool,
    waker: AtomicWaker,
    started: Instant,
    /// Requests that the client gave up, less those that it heard the answers of.
    given_up: AtomicU32,
}

impl Connections {
    pub(super) fn new(per_address: u32, max_age: Duration, trusted_proxies: &[IpNet]) -> Self {
        Self {
            per_address: per_address as usize,
            trusted_proxies: trusted_proxies.to_vec(),
            max_age,
            started: Instant::now(),
            lines: Mutex::default(),
        }
    }

    /// Enters a connection. `None` if its address has its share already, with a request under way on each.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Entry> {
        self.enter_as(self.address_of(peer))
    }

    /// Enters a connection whose proxy is yet to say whose it is.
    pub(super) fn enter_unnamed(self: &Arc<Self>) -> Option<Entry> {
        self.enter_as(None)
    }

    fn enter_as(self: &Arc<Self>, address: Option<ClientAddress>) -> Option<Entry> {
        let line = self.unlisted();
        self.list(address, &line).then(|| Entry {
            connections: self.clone(),
            address,
            line,
        })
    }

    /// What a peer's connections count by; none for a trusted proxy.
    fn address_of(&self, peer: IpAddr) -> Option<ClientAddress> {
        let ip = peer.to_canonical();
        let is_proxy = self.trusted_proxies.iter().any(|net| net.contains(&ip));
        (!is_proxy).then(|| ClientAddress::new(ip))
    }

    /// Whether the address has room for it, if need be in place of one that is idle.
    fn list(&self, address: Option<ClientAddress>, line: &Arc<Line>) -> bool {
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

    fn unlist(&self, address: Option<ClientAddress>, line: &Arc<Line>) {
        self.change(address, |of_address| {
            of_address.lines.retain(|other| !Arc::ptr_eq(other, line));
        });
    }

    fn change(&self, address: Option<ClientAddress>, change: impl FnOnce(&mut OfAddress)) {
        let mut all = self.lock();
        if let Some(of_address) = all.get_mut(&address) {
            change(of_address);
            if of_address.count() == 0 {
                all.remove(&address);
            }
        }
    }

    /// What a connection is known by that is not entered.
    pub(super) fn unlisted(&self) -> Arc<Line> {
        Arc::new(Line::new(self.started, self.max_age))
    }

    /// Has the connection end that is idle for longest, if any is idle, unless another one is about to. Whether one makes way,
    /// now or, where all that are idle have only just connected, as soon as their requests should be here.
    pub(super) fn evict_one(&self) -> bool {
        let all = self.lock();
        let mut lines = all.values().flat_map(|of_address| &of_address.lines);
        if lines.any(|line| line.is_leaving()) {
            return true;
        }
        let idle = all
            .values()
            .filter_map(|OfAddress { lines, .. }| longest_idle(lines).map(|index| &lines[index]));
        let now = Instant::now();
        let Some(first) = idle.min_by_key(|line| line.order(now)) else {
            return false;
        };
        if !first.is_newer_than(ARRIVAL, now) {
            first.evict();
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<ClientAddress>, OfAddress>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first to go: who has never been of use, then who has been idle for longest, and last who has only just connected.
fn longest_idle(lines: &[Arc<Line>]) -> Option<usize> {
    let now = Instant::now();
    let idle = lines.iter().enumerate().filter(|(_, line)| line.is_idle());
    idle.min_by_key(|(_, line)| line.order(now))
        .map(|(index, _)| index)
}

impl OfAddress {
    fn count(&self) -> usize {
        self.lines.len() + self.streams
    }
}

impl Entry {
    pub(super) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// Counts it for the client that its proxy names, from now on. `false` if that one has its share already.
    pub(super) fn name(&mut self, client: IpAddr) -> bool {
        self.connections.unlist(self.address, &self.line);
        self.address = self.connections.address_of(client);
        self.connections.list(self.address, &self.line)
    }

    /// What one of several requests on it takes, unless the address has its share already.
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

impl Drop for Entry {
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

impl Line {
    fn new(started: Instant, max_age: Duration) -> Self {
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
            given_up: AtomicU32::new(0),
        }
    }

    /// Requests have arrived. Returns how many were under way before.
    pub(super) fn begin(&self, requests: u32) -> u32 {
        let before = self.under_way.fetch_add(requests, Ordering::Relaxed);
        self.idle_since.store(BUSY, Ordering::Relaxed);
        before
    }

    /// One of them is answered, as far as its answer's body is concerned. Whether it was the last one.
    pub(super) fn end(&self) -> bool {
        let before = self.under_way.fetch_sub(1, Ordering::Relaxed);
        self.has_served.store(true, Ordering::Relaxed);
        before == 1
    }

    /// Whether a client gives up more than it may, now that it has given up a request or has heard its answer.
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

    /// Whether all are.
    pub(super) fn is_answered(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) == 0
    }

    /// All answers have gone out.
    pub(super) fn rest(&self) {
        let now = millis(self.started, Instant::now());
        self.idle_since.store(now, Ordering::Relaxed);
    }

    /// Whether it has ever answered a request.
    pub(super) fn has_served(&self) -> bool {
        self.has_served.load(Ordering::Relaxed)
    }

    /// Whether it is to end for another one; wakes this task when it is.
    pub(super) fn is_evicted(&self, waker: &Waker) -> bool {
        self.waker.register(waker);
        self.is_evicted.load(Ordering::Acquire)
    }

    /// Completes when it is to end for another one.
    pub(super) async fn evicted(&self) {
        poll_fn(|context| match self.is_evicted(context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// The time from which on nothing was under way on it, unless something is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        match self.idle_since.load(Ordering::Relaxed) {
            BUSY => None,
            millis => Some(self.started + Duration::from_millis(millis)),
        }
    }

    /// Has it end once nothing is under way on it.
    pub(super) fn evict(&self) {
        self.is_evicted.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether it ends after the request under way on it.
    pub(super) fn makes_way(&self) -> bool {
        self.is_evicted.load(Ordering::Relaxed)
    }

    fn is_idle(&self) -> bool {
        let is_evicted = self.is_evicted.load(Ordering::Relaxed);
        !is_evicted && self.idle_since.load(Ordering::Relaxed) != BUSY
    }

    /// Whether it is evicted and has nothing to finish first.
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

    /// Whether it has connected within this time, and nothing has come of it.
    fn is_newer_than(&self, age: Duration, now: Instant) -> bool {
        let idle_since = self.idle_since.load(Ordering::Relaxed);
        let idle_ms = millis(self.started, now).saturating_sub(idle_since);
        !self.has_served() && u128::from(idle_ms) < age.as_millis()
    }
}

fn millis(since: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(since).as_millis()).unwrap_or(BUSY - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn is_evicted(entry: &Entry) -> bool {
        entry.line.is_evicted(Waker::noop())
    }

    #[test]
    fn an_address_has_its_share_and_a_proxy_has_none() {
        let proxies = ["10.0.0.0/8".parse().expect("a network")];
        let connections = Arc::new(Connections::new(2, HOUR, &proxies));
        let enter = |from: &str| connections.enter(ip(from));
        let (first, second) = (enter("::ffff:192.0.2.1"), enter("192.0.2.1"));
        let (first, second) = (first.expect("a place"), second.expect("a place"));
        first.line.begin(1);
        // In place of the one that is idle.
        let third = enter("192.0.2.1").expect("a place");
        assert!(is_evicted(&second) && !is_evicted(&first));
        third.line.begin(1);
        assert!(enter("192.0.2.1").is_none());
        assert!(enter("192.0.2.2").is_some());
        // Of one that has ended, another one takes the place.
        drop(third);
        assert!(enter("192.0.2.1").is_some());
        // One network of IPv6 is one client.
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
        let connections = Arc::new(Connections::new(3, HOUR, &[]));
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
        let line = Line::new(Instant::now(), HOUR);
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
        let mut connections = Connections::new(9, HOUR, &[]);
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
        // One at a time.
        drop(silent);
        // Who has just come is not silent yet.
        let new = connections.enter(ip("192.0.2.4")).expect("a place");
        connections.evict_one();
        assert!(is_evicted(&served) && !is_evicted(&new));
        drop(served);
        // Its request may be on its way.
        assert!(connections.evict_one() && !is_evicted(&new));
        new.line.idle_since.store(0, Ordering::Relaxed);
        assert!(connections.evict_one() && is_evicted(&new));
        drop(new);
        connections.evict_one();
        assert!(!is_evicted(&busy) && connections.lock().len() == 1);
    }
}
