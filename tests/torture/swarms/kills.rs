//! X1: the executor is killed in the middle of swarms, many times.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tests::ledger::random::Random;
use tests::stores::{Durability, Postgres};

use super::Ground;

/// Kills on each database.
const KILLS: u32 = 100;

pub(crate) fn run() -> bool {
    let kills = crate::rounds(KILLS);
    let runtime = crate::runtime(2);
    let postgres = Postgres::start(Durability::Real);
    let url = runtime.block_on(postgres.create_database());
    let on_sqlite = kill(Ground::on_sqlite(&runtime), kills);
    let on_postgres = kill(Ground::on_postgres(&runtime, &url, 1), kills);
    on_sqlite && on_postgres
}

fn kill(mut ground: Ground<'_>, kills: u32) -> bool {
    ground.start();
    let undisturbed = ground.undisturbed();
    let mut random = Random::new(1);
    let mut points = BTreeMap::<String, u32>::new();
    let (mut killed, mut slowest, mut asked_most) = (0, Duration::ZERO, 0);
    for number in 0_u32.. {
        if killed == kills {
            break;
        }
        let asked = ground.ask(format!("kill-{number}"));
        ground.until_begun(&asked);
        Ground::wander(&mut random, undisturbed);
        ground.executor().kill();
        let began = Instant::now();
        // A swarm that has ended by then does not count as a kill.
        if let Some(point) = ground.point(&asked) {
            *points.entry(point).or_default() += 1;
            killed += 1;
        }
        ground.executor().start();
        ground.until_over(&asked);
        slowest = slowest.max(began.elapsed());
        ground.judge(&asked);
        asked_most = asked_most.max(ground.outside.asked(&asked.tag));
    }
    let points: Vec<_> = points
        .iter()
        .map(|(at, kills)| format!("{kills} {at}"))
        .collect();
    let figures = format!(
        "{killed} kills ({}), over {slowest:.1?} after the kill at most ({undisturbed:.0?} undisturbed), the model asked \
         {asked_most} times for a step at most",
        points.join(", ")
    );
    ground.close("X1", &figures)
}
