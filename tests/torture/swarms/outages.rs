//! X4: outages during a swarm: the database at its claim, the API in the middle of a call, all nodes right after the
//! 202.

use std::time::Duration;

use tests::ledger::random::Random;
use tests::stores::{Durability, Postgres};

use super::Ground;

/// Rounds of each kind, on each database.
const ROUNDS: u32 = 20;

/// Duration of the database's outage, and its beginning after the start of an executor.
const AWAY: Duration = Duration::from_millis(700);
const TAKING_UP: Duration = Duration::from_millis(2_500);

pub(crate) fn run() -> bool {
    let rounds = crate::rounds(ROUNDS);
    let runtime = crate::runtime(2);
    let postgres = Postgres::start(Durability::Real);
    let url = runtime.block_on(postgres.create_database());
    let on_sqlite = outages(Ground::on_sqlite(&runtime), rounds, None);
    let on_postgres = outages(
        Ground::on_postgres(&runtime, &url, 1),
        rounds,
        Some(&postgres),
    );
    on_sqlite && on_postgres
}

/// Without a database server, the store goes down with the node alone.
fn outages(mut ground: Ground<'_>, rounds: u32, postgres: Option<&Postgres>) -> bool {
    ground.start();
    let undisturbed = ground.undisturbed();
    let mut random = Random::new(4);
    for number in 0..rounds {
        recovery(&mut ground, number, &mut random, undisturbed, postgres);
        call(&mut ground, number, &mut random, undisturbed);
        acceptance(&mut ground, number);
    }
    let figures = format!(
        "{rounds} times each: {} while a swarm was taken up again, the API killed in a call, everything killed behind the \
         202",
        match postgres {
            Some(_) => "the database restarted",
            None => "the node killed again",
        }
    );
    ground.close("X4", &figures)
}

fn recovery(
    ground: &mut Ground<'_>,
    number: u32,
    random: &mut Random,
    undisturbed: Duration,
    postgres: Option<&Postgres>,
) {
    let asked = ground.ask(format!("recovery-{number}"));
    ground.until_begun(&asked);
    Ground::wander(random, undisturbed);
    ground.executor().kill();
    ground.executor().start();
    Ground::wander(random, TAKING_UP);
    match postgres {
        Some(postgres) => {
            postgres.kill();
            std::thread::sleep(AWAY);
            postgres.restart();
        }
        None => {
            ground.executor().kill();
            ground.executor().start();
        }
    }
    ground.until_over(&asked);
    ground.judge(&asked);
}

fn call(ground: &mut Ground<'_>, number: u32, random: &mut Random, undisturbed: Duration) {
    let asked = ground.ask(format!("call-{number}"));
    ground.until_begun(&asked);
    Ground::wander(random, undisturbed / 2);
    // From the arrival of the model's request, for as long as it thinks.
    let calls = ground.outside.model.count();
    while ground.outside.model.count() == calls && !ground.state(&asked).is_over() {}
    ground.api.kill();
    ground.api.start();
    ground.until_over(&asked);
    ground.judge(&asked);
}

fn acceptance(ground: &mut Ground<'_>, number: u32) {
    let asked = ground.ask(format!("acceptance-{number}"));
    for executor in &mut ground.executors {
        executor.kill();
    }
    ground.api.kill();
    ground.start();
    ground.until_over(&asked);
    ground.judge(&asked);
}
