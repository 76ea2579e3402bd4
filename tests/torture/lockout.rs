//! Failed authentications from one address that forges others, and from very many addresses.

use tests::gateway::USER;
use tests::{Client, Gateway};
use weir_identity::store;

use crate::resident_mib;

const FORGED: usize = 10_000;

/// Addresses that fail once each: more than the capacity of one process's cache.
const ADDRESSES: usize = 250_000;

/// Memory of the entries that those addresses can fill.
const MEMORY_LIMIT_MIB: usize = 96;

pub(crate) fn run() -> bool {
    let runtime = crate::runtime(2);
    runtime.block_on(async { forged().await & crowd().await })
}

async fn forged() -> bool {
    let gateway = Gateway::builder().settings("dev = false").start().await;
    let (known, new) = (gateway.client(), new_key(&gateway).await);
    assert_eq!(known.get("/models").await.status, 200);
    let mut judged = 0;
    for n in 0..FORGED {
        let status = fail(&gateway.stranger(), n).await;
        judged += usize::from(status == 401);
    }
    let [known, new] = [
        known.get("/models").await.status,
        new.get("/models").await.status,
    ];
    println!(
        "A3: {FORGED} attempts with forged X-Forwarded-For: {judged} judged (limit 10); then a key from there that is \
         in use gets {known}, one that is not {new}"
    );
    judged == 10 && known == 200 && new == 429
}

async fn crowd() -> bool {
    let gateway = Gateway::builder()
        .settings("dev = false\ntrusted_proxies = [\"127.0.0.0/8\"]")
        .start()
        .await;
    let clients: Vec<_> = (0..16).map(|_| gateway.stranger()).collect();
    let first = gateway.stranger();
    for _ in 0..10 {
        assert_eq!(fail(&first, 0).await, 401);
    }
    assert_eq!(gateway.client().get("/models").await.status, 200);
    let before = resident_mib();
    let lanes = clients.iter().enumerate().map(async |(lane, client)| {
        for n in (lane..ADDRESSES).step_by(16).skip(1) {
            fail(client, n).await;
        }
    });
    futures_util::future::join_all(lanes).await;
    let grown = resident_mib().saturating_sub(before);
    let still = fail(&first, 0).await;
    let mut elsewhere = Vec::new();
    for client in [gateway.client(), new_key(&gateway).await] {
        let client = client.with_header("x-forwarded-for", "198.51.100.7");
        elsewhere.push(client.get("/models").await.status);
    }
    println!(
        "A3: {ADDRESSES} addresses that fail once: {grown} MiB more resident (limit {MEMORY_LIMIT_MIB}); who was shut \
         out before them gets {still}; from another address, a key in use gets {}, a new one {}",
        elsewhere[0], elsewhere[1]
    );
    grown <= MEMORY_LIMIT_MIB && still == 429 && elsewhere.iter().all(|status| *status == 200)
}

/// A client with a key that was never used.
async fn new_key(gateway: &Gateway) -> Client {
    let app = gateway.app();
    let (database, peppers, now) = (&app.database, &app.identity.key_peppers, app.clock.now());
    let key = store::create_key(database, peppers, USER, "new", false, None, now).await;
    gateway.stranger().with_key(key.expect("a key").expose())
}

async fn fail(client: &Client, n: usize) -> u16 {
    let wrong = client
        .clone()
        .with_key("inf_wrong")
        .with_header("x-forwarded-for", &address(n));
    wrong.get("/models").await.status.as_u16()
}

/// Returns one of many addresses.
pub(crate) fn address(n: usize) -> String {
    format!("{}.{}.{}.7", 1 + (n >> 16), n >> 8 & 255, n & 255)
}
