//! X7: nodes that stop, or are killed, while models are at work on calls of swarms.

use std::time::{Duration, Instant};

use tests::stores::{Durability, Postgres};
use weir_storage::secrets::SecretUrl;

use super::Ground;

/// Time for calls under way at a stop, a tenth of the default.
const SHUTDOWN_MS: u64 = 3_000;

/// Durations of the calls: one ends within that time, two do not.
const CALLS: [Duration; 3] = [
    Duration::from_millis(800),
    Duration::from_millis(4_500),
    Duration::from_secs(20),
];

/// Swarms that are at such a call together: the share of one account.
const SWARMS: u32 = 4;

/// Time limit of a stop.
const STOPPED_WITHIN: Duration = Duration::from_secs(15);

pub(crate) fn run() -> bool {
    let swarms = crate::rounds(SWARMS);
    let runtime = crate::runtime(2);
    let postgres = Postgres::start(Durability::Real);
    let url = runtime.block_on(postgres.create_database());
    let ground = |name, url: Option<&SecretUrl>| {
        let settings = format!("[limits]\nshutdown_ms = {SHUTDOWN_MS}\n");
        Ground::new(&runtime, name, url, 0, &settings)
    };
    let on_sqlite = stop(ground("SQLite", None), swarms);
    let on_postgres = stop(ground("PostgreSQL", Some(&url)), swarms);
    on_sqlite && on_postgres
}

fn stop(mut ground: Ground<'_>, swarms: u32) -> bool {
    ground.api.take_all_roles();
    ground.start();
    let (mut ended, mut slowest, mut repeated) = (0, Duration::ZERO, 0);
    for (number, took) in CALLS.into_iter().enumerate() {
        for is_killed in [false, true] {
            ground.outside.think(took);
            let before = ground.outside.model.count();
            let tag = |swarm| format!("stop-{number}-{is_killed}-{swarm}");
            let asked: Vec<_> = (0..swarms).map(|swarm| ground.ask(tag(swarm))).collect();
            let began = Instant::now();
            while ground.outside.model.count() < before + swarms as usize {
                assert!(began.elapsed() < super::PATIENCE, "the calls do not begin");
                std::thread::sleep(Duration::from_millis(5));
            }
            if is_killed {
                ground.api.kill();
            } else {
                ground.api.signal("TERM");
                let runtime = ground.runtime;
                let stopped = runtime.block_on(ground.api.ended_within(STOPPED_WITHIN));
                assert_eq!(stopped, Some(true), "an orderly stop");
            }
            ground.outside.think(Duration::ZERO);
            ground.api.start();
            let began = Instant::now();
            for one in &asked {
                ground.until_over(one);
                ground.judge(one);
                repeated += usize::from(ground.outside.asked(&one.tag) > 1);
            }
            slowest = slowest.max(began.elapsed());
            ended += asked.len();
        }
    }
    let figures = format!(
        "{ended} swarms with a call of {CALLS:.1?} under way at a stop (calls have {SHUTDOWN_MS} ms) or a kill, over {slowest:.1?} \
         after the next start at most, {repeated} repeated their call"
    );
    ground.close("X7", &figures)
}
