//! H1: connections that send a byte now and then, in headers, in a body, between requests, in HTTP/2's own
//! beginnings.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tests::{Client, percentile};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{PREFACE, client, hello, key};
use crate::process::{Node, Stores};

const SOCKETS: usize = 500;

/// The setting of each time limit, the interval between bytes, and the time limit of the close.
const WAIT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 4 } else { 10 });
const BYTE_EVERY: Duration = Duration::from_secs(if cfg!(debug_assertions) { 1 } else { 5 });
const CLOSED_WITHIN: Duration = Duration::from_secs(if cfg!(debug_assertions) { 6 } else { 12 });

/// Maximum ratio of healthy requests' p99, and the allowance for the machine's own noise.
const SLOWER_LIMIT: f64 = 1.2;
const NOISE: Duration = Duration::from_millis(2);

const HEALTHY_EVERY: Duration = Duration::from_millis(10);

pub(crate) fn run() -> bool {
    weir::server::descriptors::raise(4 * SOCKETS as u64);
    crate::runtime(2).block_on(async {
        let wait = WAIT.as_millis();
        let mut node = Node::new(
            &Stores::default(),
            &format!(
                "[rate_limits]\nfree = 1000000\naddress = 1000000\n\
                 [limits]\nhead_timeout_ms = {wait}\nidle_timeout_ms = {wait}\nbody_timeout_ms = {wait}\n"
            ),
        );
        node.start();
        let (address, key) = (node.address(), key(&node));
        let client = client(&node, &key);
        healthy(&client, Duration::from_secs(1)).await;
        let mut alone = healthy(&client, WAIT).await;
        let post = format!(
            "POST /chat HTTP/1.1\r\nHost: {address}\r\nX-Api-Key: {key}\r\nContent-Type: application/json\r\n\
             Content-Length: 1000\r\n\r\n{{"
        );
        let health = format!("GET /health HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let kinds: [(&str, Vec<u8>, &[u8]); 6] = [
            ("heads that drip", b"GET /health HTTP/1.1\r\nx: ".to_vec(), b"x"),
            ("bodies that drip", post.into(), b" "),
            ("idle ones", health.into(), b""),
            ("silent ones", Vec::new(), b""),
            ("HTTP/2's preface alone", PREFACE.to_vec(), b""),
            ("a frame of HTTP/2 that drips", [PREFACE, b"\0\x01\0\x01\0\0\0\0\x01"].concat(), b"\x82"),
        ];
        let began = Instant::now();
        let mut open = JoinSet::new();
        for n in 0..SOCKETS {
            let (what, begin, more) = kinds[n % kinds.len()].clone();
            open.spawn(async move { (what, hold(address, &begin, more, began).await) });
        }
        let mut beside = healthy(&client, CLOSED_WITHIN).await;
        let mut latest = BTreeMap::<_, Duration>::new();
        for (what, took) in open.join_all().await {
            let kind = latest.entry(what).or_default();
            *kind = took.max(*kind);
        }
        let slowest = *latest.values().max().expect("some kinds");
        let (alone, beside) = (percentile(&mut alone, 99), percentile(&mut beside, 99));
        println!(
            "H1: {SOCKETS} connections that drip: the last closed after {slowest:.1?} (limit {CLOSED_WITHIN:.0?}) \
             {latest:.1?}; healthy requests: p99 {beside:.2?} beside them, {alone:.2?} alone (limit {SLOWER_LIMIT} × and \
             {NOISE:?})"
        );
        slowest <= CLOSED_WITHIN && beside <= alone.mul_f64(SLOWER_LIMIT) + NOISE
    })
}

/// Sends a beginning, then the same byte again and again. Returns the time until the other side closes.
async fn hold(address: SocketAddr, begin: &[u8], more: &[u8], began: Instant) -> Duration {
    let held = async {
        let mut socket = TcpStream::connect(address).await?;
        socket.write_all(begin).await?;
        let mut clock = tokio::time::interval(BYTE_EVERY);
        let mut heard = [0; 4_096];
        loop {
            tokio::select! {
                read = socket.read(&mut heard) => if read? == 0 {
                    return Ok(());
                },
                _ = clock.tick() => socket.write_all(more).await?,
            }
        }
    };
    let _: std::io::Result<()> = held.await;
    began.elapsed()
}

/// Sends requests in sequence for a while, and returns their durations; failed requests count as endless.
async fn healthy(client: &Client, window: Duration) -> Vec<Duration> {
    let (until, mut took) = (Instant::now() + window, Vec::new());
    let mut clock = tokio::time::interval(HEALTHY_EVERY);
    while Instant::now() < until {
        clock.tick().await;
        let asked = Instant::now();
        let answer = client.try_post("/chat", &hello()).await;
        let is_served = answer.is_some_and(|answer| answer.status == 200);
        took.push(if is_served {
            asked.elapsed()
        } else {
            Duration::MAX
        });
    }
    took
}
