//! Attempts to prove oneself with what is wrong, from one address that forges others, and from very many.

use tests::{Client, Gateway};

use crate::resident_mib;

const FORGED: usize = 10_000;

/// Addresses that fail once each: more than the cache of one process has places for.
const ADDRESSES: usize = 250_000;

/// What the places take that those addresses can fill.
const MEMORY_LIMIT_MIB: usize = 96;

pub(crate) fn run() -> bool {
    let runtime = crate::runtime(2);
    runtime.block_on(async { forged().await & crowd().await })
}

async fn forged() -> bool {
    let gateway = Gateway::builder().settings("dev = false").start().await;
    let mut admitted = 0;
    for n in 0..FORGED {
        let status = fail(&gateway.stranger(), n).await;
        admitted += usize::from(status == 401);
    }
    let good = gateway.client().get("/models").await.status;
    println!(
        "A3: {FORGED} attempts with forged X-Forwarded-For: {admitted} judged (limit 10), then a good key \
         from there gets {good}"
    );
    admitted == 10 && good == 429
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
    let known = gateway
        .client()
        .with_header("x-forwarded-for", "198.51.100.7")
        .get("/models")
        .await
        .status;
    println!(
        "A3: {ADDRESSES} addresses that fail once: {grown} MiB more resident (limit {MEMORY_LIMIT_MIB}), and \
         who was shut out before them gets {still}, a known key from a new address {known}"
    );
    grown <= MEMORY_LIMIT_MIB && still == 429 && known == 200
}

async fn fail(client: &Client, n: usize) -> u16 {
    let address = format!("{}.{}.{}.7", 1 + (n >> 16), n >> 8 & 255, n & 255);
    let wrong = client
        .clone()
        .with_key("inf_wrong")
        .with_header("x-forwarded-for", &address);
    wrong.get("/models").await.status.as_u16()
}
