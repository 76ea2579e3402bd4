//! X6: users who request many swarms at once, and executors with fewer turns than users.

use std::collections::BTreeMap;
use std::time::Instant;

use sqlx::Row;
use tests::stores::{Durability, Postgres};
use weir_storage::secrets::SecretUrl;

use super::{Asked, Ground, user};

const USERS: usize = 10;

/// Swarms of each user.
const SWARMS: u32 = 20;

const EXECUTORS: usize = 4;

/// Turns of an executor: all executors together have fewer turns than there are users.
const TURNS: usize = 2;

/// Maximum deviation of a user's share from an even one.
const OFF: f64 = 0.2;

pub(crate) fn run() -> bool {
    let swarms = crate::rounds(SWARMS);
    let runtime = crate::runtime(2);
    let postgres = Postgres::start(Durability::Real);
    let url = runtime.block_on(postgres.create_database());
    // A SQLite file has one process, which is the executor.
    let sqlite = ground(&runtime, None, 0, EXECUTORS * TURNS);
    let on_sqlite = share(sqlite, swarms);
    let on_postgres = share(ground(&runtime, Some(&url), EXECUTORS, TURNS), swarms);
    on_sqlite && on_postgres
}

fn ground<'r>(
    runtime: &'r tokio::runtime::Runtime,
    postgres: Option<&SecretUrl>,
    executors: usize,
    turns: usize,
) -> Ground<'r> {
    let name = postgres.map_or("SQLite", |_| "PostgreSQL");
    let settings = format!("concurrent = {turns}");
    let mut ground = Ground::new(runtime, name, postgres, executors, &settings);
    if postgres.is_none() {
        ground.api = ground.api.into_api();
    }
    ground
}

fn share(mut ground: Ground<'_>, swarms: u32) -> bool {
    let users: Vec<_> = (0..USERS).map(|number| format!("user-{number}")).collect();
    let clients: Vec<_> = users.iter().map(|name| user(&ground.api, name)).collect();
    // User by user, and all before the first claim: the first user must not get all the first turns.
    ground.api.start();
    let mut asked: Vec<Asked> = Vec::new();
    for (name, client) in users.iter().zip(clients) {
        ground.client = client;
        asked.extend((0..swarms).map(|number| ground.ask(format!("{name}-{number}"))));
    }
    if ground.executors.is_empty() {
        ground.api.kill();
        ground.api.take_all_roles();
        ground.api.start();
    }
    let began = Instant::now();
    for executor in &mut ground.executors {
        executor.start();
    }
    for one in &asked {
        ground.until_over(one);
    }
    let took = began.elapsed();
    // While all users still wait for more.
    let half = i64::try_from(asked.len()).expect("few") / 2;
    let shares = ground.shares(half);
    let even = half as f64 / USERS as f64;
    let off = |count: i64| (count as f64 - even).abs() / even;
    let furthest = users
        .iter()
        .map(|user| off(shares.get(user).copied().unwrap_or_default()))
        .fold(0.0, f64::max);
    if furthest > OFF {
        ground.faults.push(format!("the shares are {shares:?}"));
    }
    for one in &asked {
        // Only its own user can read a swarm.
        ground.faults.extend(ground.charged(one));
    }
    let counts: Vec<_> = shares.values().map(i64::to_string).collect();
    let figures = format!(
        "{} swarms of {USERS} users on {} executors of {} turns in all, over in {took:.0?}; of the first {half} the \
         users have {}: at most {:.0} % off an even share (limit \
         {:.0} %)",
        asked.len(),
        ground.executors.len().max(1),
        EXECUTORS * TURNS,
        counts.join(", "),
        furthest * 100.0,
        OFF * 100.0
    );
    ground.close("X6", &figures)
}

impl Ground<'_> {
    /// Counts each user's swarms among the first `first` that ended.
    fn shares(&self, first: i64) -> BTreeMap<String, i64> {
        self.runtime.block_on(async {
            let rows = sqlx::query(
                "SELECT user_id FROM swarm_runs WHERE ended_at IS NOT NULL ORDER BY ended_at, id LIMIT $1",
            );
            let rows = rows.bind(first).fetch_all(self.database.reader()).await;
            let mut shares = BTreeMap::new();
            for row in rows.expect("the database answers") {
                *shares.entry(row.get(0)).or_default() += 1;
            }
            shares
        })
    }
}
