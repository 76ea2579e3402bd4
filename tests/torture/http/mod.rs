//! H1 to H5: attacks by clients over HTTP/1.1 and HTTP/2, beside healthy clients.

pub(crate) mod drain;
pub(crate) mod limits;
pub(crate) mod overloaded;
pub(crate) mod slow_readers;
pub(crate) mod slowloris;

use std::time::{Duration, Instant};

use serde_json::Value;
use tests::{Client, chat};

use crate::money::USER;
use crate::process::Node;

/// The beginning of an HTTP/2 connection, with empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Returns the open holds of a node's requests.
async fn open_holds(client: &Client) -> Option<u64> {
    figure(client, "weir_ledger_open_holds ").await
}

async fn figure(client: &Client, name: &str) -> Option<u64> {
    let metrics = client.get("/metrics").await.text();
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line?.parse().ok()
}

/// Waits until a node has settled all holds; returns whether that was in time.
async fn settles(client: &Client, within: Duration) -> bool {
    let until = Instant::now() + within;
    while Instant::now() < until {
        if open_holds(client).await == Some(0) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    false
}

/// Creates a key of a user with enough credits.
fn key(node: &Node) -> String {
    let (key, made) = node.run(&["key", "create", "--user", USER]);
    let (_, paid) = node.run(&["user", "top-up", "--user", USER, "--credits", "100000000"]);
    assert!(made && paid, "a key is made");
    key
}

/// A client with this key.
fn client(node: &Node, key: &str) -> Client {
    Client::new(node.address()).with_key(key)
}

/// A request of a healthy client.
fn hello() -> Value {
    chat("demo", "hello")
}
