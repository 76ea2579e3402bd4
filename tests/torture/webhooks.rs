//! L8: the payment processor's events, several times each, in any order, concurrently, to one node and to two.

use std::pin::pin;
use std::time::Instant;

use futures_util::{StreamExt as _, stream};
use tests::Gateway;
use tests::gateway::at;
use tests::ledger::create_users;
use tests::ledger::random::Random;
use tests::payments::{AFTER_THE_STORY, Payer, Processor};
use tests::stores::Postgres;
use weir_storage::clock::ManualClock;

const SHUFFLES: u32 = 1_000;

const SEED: u64 = 8;

/// Users whose events are sent at the same time.
const TOGETHER: usize = 4;

pub(crate) fn run() -> bool {
    let runtime = crate::runtime(4);
    runtime.block_on(async {
        let clock = ManualClock::at(at(AFTER_THE_STORY));
        let one = [Gateway::builder().clock(&clock).start().await];
        let on_sqlite = shuffle("SQLite", &one, &clock).await;
        let url = Postgres::shared().create_database().await;
        let on_it = || Gateway::builder().clock(&clock).postgres(&url);
        let first = on_it().start().await;
        let second = on_it().sharing_secrets_of(&first).start().await;
        on_sqlite & shuffle("PostgreSQL, two nodes", &[first, second], &clock).await
    })
}

async fn shuffle(name: &str, gateways: &[Gateway], clock: &ManualClock) -> bool {
    let app = gateways[0].app();
    let nodes: Vec<_> = gateways
        .iter()
        .map(|node| Processor::new(node.stranger(), node.app()))
        .collect();
    let make = async |name: String| {
        create_users(&app.database, [&*name].into_iter(), app.clock.now().0).await;
        Payer(name)
    };
    let reference = make("reference".to_owned()).await;
    let story = reference.story();
    for event in &story {
        nodes[0].tell(event).await;
    }
    assert!(
        reference.until_applied(&nodes[0], clock).await,
        "in order, they are applied"
    );
    let expected = reference.outcome(app).await;
    println!(
        "L8: {name}: in order, {} events come to {expected}",
        story.len()
    );
    let (began, shuffles) = (Instant::now(), crate::rounds(SHUFFLES));
    let shuffled = stream::iter(0..shuffles).map(async |round| {
        let payer = make(format!("shuffled{round}")).await;
        let mut random = Random::new(SEED + u64::from(round));
        payer.tell_shuffled(&nodes, &mut random).await;
        let is_applied = payer.until_applied(&nodes[0], clock).await;
        (round, is_applied, payer.outcome(app).await)
    });
    let mut shuffled = pin!(shuffled.buffer_unordered(TOGETHER));
    let (mut other, mut unapplied) = (0, 0);
    while let Some((round, is_applied, outcome)) = shuffled.next().await {
        unapplied += usize::from(!is_applied);
        if outcome != expected {
            other += 1;
            eprintln!("L8: {name}: shuffle {round} of seed {SEED} comes to {outcome}");
        }
    }
    println!(
        "L8: {name}: {shuffles} shuffles of {} events, 5 times each, 20 at once: {other} come to something else, \
         {unapplied} leave events unapplied, after {:.0?}",
        story.len(),
        began.elapsed()
    );
    other == 0 && unapplied == 0
}
