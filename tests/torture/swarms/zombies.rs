//! X2: an executor is frozen past its lease in the middle of swarms, which another executor completes.

use std::collections::BTreeMap;

use sqlx::Row;
use tests::ledger::random::Random;
use tests::stores::{Durability, Postgres};

use super::{Asked, Ground, LEASE, PATIENCE};
use crate::process::wait_until;

/// Freezes on each database.
const FREEZES: u32 = 30;

/// Log lines of an executor that has lost a swarm, or its database connection, during a freeze.
const LOST: [&str; 3] = [
    "lost the lease of a swarm",
    "another executor owns the swarm now",
    "stopped work on a swarm",
];

pub(crate) fn run() -> bool {
    let freezes = crate::rounds(FREEZES);
    let runtime = crate::runtime(2);
    let postgres = Postgres::start(Durability::Real);
    let url = runtime.block_on(postgres.create_database());
    let alone = freeze_alone(Ground::on_sqlite(&runtime), freezes);
    let beside_another = freeze(Ground::on_postgres(&runtime, &url, 2), freezes);
    alone && beside_another
}

/// On one node: it continues by itself, under a new claim.
fn freeze_alone(mut ground: Ground<'_>, freezes: u32) -> bool {
    ground.start();
    let undisturbed = ground.undisturbed();
    let mut random = Random::new(2);
    let mut frozen = 0;
    for number in 0_u32.. {
        if frozen == freezes {
            break;
        }
        let asked = ground.ask(format!("freeze-{number}"));
        ground.until_begun(&asked);
        Ground::wander(&mut random, undisturbed);
        ground.api.signal("STOP");
        let is_under_way = ground.point(&asked).is_some();
        std::thread::sleep(LEASE + LEASE / 2);
        ground.api.signal("CONT");
        ground.until_over(&asked);
        if is_under_way {
            frozen += 1;
            if ground.state(&asked).fence < 2 {
                ground.fault(&asked, "it went on under a lease that was over");
            }
        }
        ground.judge(&asked);
    }
    ground.close("X2", &format!("{frozen} freezes of the one node"))
}

/// Beside another executor, which completes the frozen one's swarms. Every second one wakes only after that.
fn freeze(mut ground: Ground<'_>, freezes: u32) -> bool {
    ground.api.start();
    let mut boots = BTreeMap::new();
    for index in 0..ground.executors.len() {
        let known = ground.boots();
        ground.executors[index].start();
        let own = ground
            .boots()
            .into_iter()
            .find(|boot| !known.contains(boot));
        boots.insert(own.expect("it has a lease in the ledger"), index);
    }
    let undisturbed = ground.undisturbed();
    let mut random = Random::new(3);
    let (mut frozen, mut early) = (0, 0);
    for number in 0_u32.. {
        if frozen == freezes {
            break;
        }
        let asked = ground.ask(format!("freeze-{number}"));
        ground.until_begun(&asked);
        Ground::wander(&mut random, undisturbed);
        let state = ground.state(&asked);
        let zombie = boots[&state.owner.expect("somebody had it")];
        let lost = ground.lost(zombie);
        ground.executors[zombie].signal("STOP");
        // A swarm that has ended has no lease to lose.
        let is_under_way = ground.point(&asked).is_some();
        let wakes_early = number % 2 == 1;
        if is_under_way {
            ground.until(&asked, "taken up by the other", |now| {
                now.fence > state.fence || now.is_over()
            });
        }
        if wakes_early {
            ground.executors[zombie].signal("CONT");
        }
        ground.until_over(&asked);
        let before = ground.trace(&asked);
        if !wakes_early {
            ground.executors[zombie].signal("CONT");
        }
        if is_under_way && ground.state(&asked).fence > state.fence {
            frozen += 1;
            early += u32::from(wakes_early);
            let runtime = ground.runtime;
            let seen = wait_until(PATIENCE, async || ground.lost(zombie) > lost);
            if runtime.block_on(seen).is_none() {
                ground.fault(
                    &asked,
                    "the one that was frozen does not say that it has lost it",
                );
            }
            let after = ground.trace(&asked);
            if before != after {
                ground.fault(&asked, format_args!("{before} became {after}"));
            }
        }
        ground.judge(&asked);
    }
    let figures =
        format!("{frozen} freezes beside another executor, {early} woken in the midst of its work");
    ground.close("X2", &figures)
}

impl Ground<'_> {
    /// Returns the runs of nodes that the ledger knows.
    fn boots(&self) -> Vec<String> {
        self.runtime.block_on(async {
            let rows = sqlx::query("SELECT boot_id FROM node_leases");
            let rows = rows.fetch_all(self.database.reader()).await;
            let rows = rows.expect("the database answers");
            rows.iter().map(|row| row.get(0)).collect()
        })
    }

    /// Counts the swarms that an executor has lost by its log.
    fn lost(&self, executor: usize) -> usize {
        let executor = &self.executors[executor];
        LOST.iter().map(|line| executor.logged(line)).sum()
    }

    /// Returns all records of a swarm, and all its calls.
    fn trace(&self, asked: &Asked) -> String {
        let run = "SELECT CAST(status || '/' || fence || '/' || last_event || '/' || credits || '/' || \
             (SELECT COUNT(*) FROM swarm_events WHERE run_id = swarm_runs.id) || '/' || \
             (SELECT SUM(ended_at) FROM swarm_agents WHERE run_id = swarm_runs.id) || '/' || \
             (SELECT SUM(intended_at + ended_at) FROM swarm_steps WHERE run_id = swarm_runs.id) AS TEXT) \
             FROM swarm_runs WHERE id = $1";
        let written: String = self.row(run, &asked.id).get(0);
        let (model, receiver) = (self.outside.model.count(), self.outside.receiver.count());
        format!("{written}, {model} calls of the model, {receiver} of tools")
    }
}
