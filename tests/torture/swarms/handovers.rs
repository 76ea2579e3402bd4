//! X9: swarms that move from one executor to another during a model call.

use std::time::Instant;

use tests::handovers::hand_over;
use tests::stores::{Durability, Postgres};
use tests::{Gateway, Upstream};
use weir_ledger::verify::verify;
use weir_storage::secrets::SecretUrl;

/// Handovers on each database.
const HANDOVERS: u32 = 1_000;

pub(crate) fn run() -> bool {
    let handovers = crate::rounds(HANDOVERS);
    let runtime = crate::runtime(2);
    let postgres = Postgres::start(Durability::Real);
    runtime.block_on(async {
        let on_sqlite = on("SQLite", None, handovers).await;
        let url = postgres.create_database().await;
        let on_postgres = on("PostgreSQL", Some(&url), handovers).await;
        on_sqlite && on_postgres
    })
}

async fn on(name: &str, postgres: Option<&SecretUrl>, handovers: u32) -> bool {
    let upstream = Upstream::start().await;
    let mut builder = Gateway::builder()
        .swarms()
        .upstream("scripted", &upstream)
        .tables(
            "[swarms]\nlease_ms = 1000\n[rate_limits]\npro = 1000000\naddress = 1000000\n\
             [stores]\nacquire_ms = 10000\nstatement_ms = 10000\n",
        );
    if let Some(url) = postgres {
        builder = builder.postgres(url);
    }
    let gateway = builder.start().await;
    gateway.set_plan("pro").await;
    let began = Instant::now();
    let faults = hand_over(&gateway, &upstream, handovers).await;
    let took = began.elapsed();
    for fault in &faults {
        println!("X9: {name}: {fault}");
    }
    let app = gateway.app();
    let violations = verify(&app.database, app.clock.now()).await;
    let violations = violations.expect("the database answers");
    println!(
        "X9: {name}: {handovers} handovers with a model call under way in {took:.0?}: {} that cost more than their budget, or \
         not what they cost without one; {} violations of the ledger's rules",
        faults.len(),
        violations.len()
    );
    gateway.stop().await;
    faults.is_empty() && violations.is_empty()
}
