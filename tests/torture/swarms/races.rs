//! X3: two executors race for an expired lease, many times.

use tests::ledger::create_users;
use tests::stores::{Durability, Postgres, patient_database};
use weir_ledger::Credits;
use weir_storage::clock::Millis;
use weir_storage::ids;
use weir_storage::sealing::KeyRing;
use weir_storage::secrets::{SecretKey, SecretUrl};
use weir_swarms::swarm::request::{AgentTool, Defaults, SwarmCaller, read};
use weir_swarms::swarm::store::{Lease, LeaseError, NewRun, SwarmStore};

use super::outside::swarm;
use crate::money::USER;

/// Races on each database.
const RACES: u32 = 1_000;

/// Duration of a lease in milliseconds.
const LEASE_MS: i64 = 1_000;

pub(crate) fn run() -> bool {
    let races = crate::rounds(RACES);
    let folder = tempfile::tempdir().expect("a folder");
    let sqlite = SecretUrl::new(format!(
        "sqlite:{}",
        folder.path().join("weir.db").display()
    ));
    let runtime = crate::runtime(2);
    let postgres = Postgres::start(Durability::Real);
    runtime.block_on(async {
        let on_sqlite = race("SQLite", &sqlite, races).await;
        let on_postgres = race("PostgreSQL", &postgres.create_database().await, races).await;
        on_sqlite && on_postgres
    })
}

/// Each executor has connections of its own.
async fn race(name: &str, url: &SecretUrl, races: u32) -> bool {
    let mut stores = Vec::new();
    for _ in 0..2 {
        let database = patient_database(url).await;
        if stores.is_empty() {
            create_users(&database, [USER].into_iter(), 0).await;
        }
        stores.push(SwarmStore::new(
            database,
            KeyRing::of([(1, SecretKey::new([1; 32]))]),
        ));
    }
    accept(&stores[0]).await;
    let (mut won, mut lost, mut wrong) = ([0, 0], 0, 0);
    let mut before: Option<(usize, Lease)> = None;
    for round in 1..=i64::from(races) {
        let now = Millis(round * LEASE_MS);
        let claims = stores.iter().enumerate().map(|(executor, store)| {
            let store = store.clone();
            tokio::spawn(async move {
                let until = Millis(now.0 + LEASE_MS);
                store
                    .claim(&format!("executor {executor}"), 100, now, until)
                    .await
            })
        });
        // Both claims are under way before either is awaited.
        let claims: Vec<_> = claims.collect();
        let mut winners = Vec::new();
        for (executor, claim) in claims.into_iter().enumerate() {
            let claim = claim
                .await
                .expect("no panic")
                .expect("the database answers");
            winners.extend(claim.map(|lease| (executor, lease)));
        }
        match &winners[..] {
            [(executor, lease)] if lease.fence == round => won[*executor] += 1,
            _ => wrong += 1,
        }
        if let Some((executor, lease)) = before {
            let late = lease.begin(&stores[executor], now).await;
            lost += u32::from(matches!(late.err(), Some(LeaseError::Lost)));
        }
        before = winners.pop();
    }
    println!(
        "X3: {name}: {races} races for a lapsed lease: won {} and {}, {wrong} by none or both; {lost} of {} that had it \
         before could not write",
        won[0],
        won[1],
        races - 1
    );
    wrong == 0 && won[0] + won[1] == races && lost == races - 1
}

/// Stores a swarm to be claimed.
async fn accept(store: &SwarmStore) {
    let tool = |name: &str| {
        Some(AgentTool {
            name: name.to_owned(),
            description: String::new(),
            parameters: serde_json::json!({}),
        })
    };
    let defaults = Defaults {
        model: None,
        tool: &tool,
        integration: &|_| true,
    };
    let body = swarm("race").to_string();
    let (request, _) = read(body.as_bytes(), SwarmCaller::User, defaults).expect("it is sound");
    let run = NewRun {
        id: &ids::swarm_id(),
        user_id: USER,
        parts: &[],
        request: &request,
        budget: Credits::whole(1),
        key: None,
        at: Millis(0),
        deadline: Millis(i64::MAX),
    };
    store.accept(&run).await.expect("the database answers");
}
