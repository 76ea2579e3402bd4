//! Redis fails under load, by a crash or by hanging, and recovers; under Sentinel, another server takes its place.

use std::time::{Duration, Instant};

use tests::stores::{Postgres, Redis, Sentinels};
use tests::{Gateway, Reply, Upstream, percentile};
use tokio::task::JoinSet;

use crate::money::Books;
use crate::process::wait_until;

const REQUESTS_PER_SECOND: u32 = 50;

/// Duration of the outage.
const AWAY: Duration = Duration::from_secs(10);

/// The first requests of the outage wait for the cache's own time-out.
const LIMIT: Duration = Duration::from_millis(400);
const LIMIT_OF_BREAKER: Duration = Duration::from_millis(5);
/// Time in which every hold ends.
const SETTLING: Duration = Duration::from_secs(5);
const LIMIT_OF_RECOVERY: Duration = Duration::from_secs(2);

/// One outage as clients saw it.
struct Outage {
    refused: usize,
    otherwise: usize,
    /// The slowest request of all, and of those that began after the first refusal.
    slowest: Duration,
    p99_of_breaker: Duration,
    upstream_calls: usize,
    recovery: Duration,
}

pub(crate) fn run() -> bool {
    let runtime = crate::runtime(2);
    runtime.block_on(async {
        let mut sound = true;
        for on_postgres in [false, true] {
            let (redis, upstream) = (Redis::start(), Upstream::start().await);
            upstream.always(Reply::chat("fine"));
            let mut builder = Gateway::builder()
                .impatient()
                // Limits without slices, because requests in a slice need no Redis.
                .tables("[rate_limits]\nfree = 1100\naddress = 1100\n")
                .redis(&redis.url())
                .upstream("scripted", &upstream);
            if on_postgres {
                builder = builder.postgres(&Postgres::shared().create_database().await);
            }
            let gateway = builder.start().await;
            let name = if on_postgres { "PostgreSQL" } else { "SQLite" };
            for (how, away, back) in [
                (
                    "killed",
                    Redis::kill as fn(&Redis),
                    Redis::restart as fn(&Redis),
                ),
                ("stopped", Redis::pause, Redis::resume),
                ("killed", Redis::kill, Redis::restart),
                ("stopped", Redis::pause, Redis::resume),
            ] {
                let outage = outage(&gateway, &upstream, || away(&redis), || back(&redis)).await;
                sound &= outage.report(name, how);
            }
            let books = Books::of(&gateway);
            let closed = wait_until(SETTLING, async || books.totals().await.open == 0).await;
            let (totals, balanced) = (books.totals().await, books.are_sound().await);
            println!(
                "L7: {name}: {} upstream calls, {} charges, {} open holds, ledger sound: {balanced}",
                upstream.count(),
                totals.charged,
                totals.open,
            );
            sound &= balanced && closed.is_some() && totals.charged == upstream.count() as i64;
        }
        sound & sentinels().await
    })
}

/// Failovers of each kind.
const FAILOVERS: usize = 5;

/// Time from the election of a master to the first response.
const LIMIT_OF_FAILOVER: Duration = Duration::from_secs(3);

/// The master is killed, frozen and demoted in turn, under load.
async fn sentinels() -> bool {
    let (stores, upstream) = (Sentinels::start(), Upstream::start().await);
    upstream.always(Reply::chat("fine"));
    let gateway = Gateway::builder()
        .impatient()
        .redis(&stores.url())
        .upstream("scripted", &upstream)
        .start()
        .await;
    let (mut sound, mut slowest) = (true, Duration::ZERO);
    for how in ["killed", "stopped", "demoted"].repeat(FAILOVERS) {
        stores.wait_for_replica();
        let [master, _] = stores.master().expect("they agree");
        match how {
            "killed" => master.kill(),
            "stopped" => master.pause(),
            _ => stores.fail_over(),
        }
        let (mut elected, mut refused, mut otherwise) = (None, 0, 0);
        loop {
            let is_other = |[now, _]: [&Redis; 2]| now.port() != master.port();
            if elected.is_none() && stores.master().is_some_and(is_other) {
                elected = Some(Instant::now());
            }
            match gateway.chat("scripted", "hello").await.status.as_u16() {
                200 if elected.is_some() => break,
                200 => {}
                503 => refused += 1,
                _ => otherwise += 1,
            }
            tokio::time::sleep(Duration::from_secs(1) / REQUESTS_PER_SECOND).await;
        }
        let took = elected.map_or(Duration::ZERO, |at| at.elapsed());
        println!(
            "L7: Sentinel, master {how}: {refused} refused with 503, {otherwise} otherwise, served {took:.0?} \
             after the election (limit {LIMIT_OF_FAILOVER:.0?})"
        );
        slowest = slowest.max(took);
        sound &= otherwise == 0;
        match how {
            "killed" => master.restart(),
            "stopped" => master.resume(),
            _ => {}
        }
    }
    let books = Books::of(&gateway);
    let closed = wait_until(SETTLING, async || books.totals().await.open == 0).await;
    let (totals, balanced) = (books.totals().await, books.are_sound().await);
    println!(
        "L7: Sentinel: slowest {slowest:.0?}, {} upstream calls, {} charges, ledger sound: {balanced}",
        upstream.count(),
        totals.charged
    );
    sound
        && slowest <= LIMIT_OF_FAILOVER
        && balanced
        && closed.is_some()
        && totals.charged == upstream.count() as i64
}

async fn outage(
    gateway: &Gateway,
    upstream: &Upstream,
    away: impl FnOnce(),
    back: impl FnOnce(),
) -> Outage {
    // In sequence, so that no request is under way when the cache fails.
    for _ in 0..50 {
        let answer = gateway.chat("scripted", "hello").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let calls_before = upstream.count();
    away();
    let mut requests = JoinSet::new();
    let mut clock = tokio::time::interval(Duration::from_secs(1) / REQUESTS_PER_SECOND);
    let started = Instant::now();
    while started.elapsed() < AWAY {
        clock.tick().await;
        let client = gateway.client();
        requests.spawn(async move {
            let began = Instant::now();
            let answer = client
                .post("/chat", &tests::chat("scripted", "hello"))
                .await;
            (began, began.elapsed(), answer.status.as_u16())
        });
    }
    let mut outcomes = requests.join_all().await;
    let upstream_calls = upstream.count() - calls_before;
    back();
    let returned = Instant::now();
    while gateway.chat("scripted", "hello").await.status != 200 {
        assert!(
            returned.elapsed() < Duration::from_secs(30),
            "it comes back"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let recovery = returned.elapsed();
    let opened = outcomes.iter().map(|(began, took, _)| *began + *took).min();
    let opened = opened.expect("some were sent");
    let refused = outcomes.iter().filter(|(_, _, status)| *status == 503);
    let refused = refused.count();
    outcomes.sort_by_key(|(_, took, _)| *took);
    let mut quick: Vec<_> = outcomes
        .iter()
        .filter(|(began, _, _)| *began > opened)
        .map(|(_, took, _)| *took)
        .collect();
    Outage {
        refused,
        otherwise: outcomes.len() - refused,
        slowest: outcomes.last().expect("some were sent").1,
        p99_of_breaker: percentile(&mut quick, 99),
        upstream_calls,
        recovery,
    }
}

impl Outage {
    fn report(&self, database: &str, how: &str) -> bool {
        println!(
            "L7: {database}, Redis {how} for {AWAY:.0?}: {} refused with 503, {} otherwise, slowest {:.1?} \
             (limit {LIMIT:.0?}), breaker open p99 {:.2?} (limit {LIMIT_OF_BREAKER:.0?}), {} upstream \
             calls, recovered in {:.0?} (limit {LIMIT_OF_RECOVERY:.0?})",
            self.refused,
            self.otherwise,
            self.slowest,
            self.p99_of_breaker,
            self.upstream_calls,
            self.recovery,
        );
        self.otherwise == 0
            && self.slowest <= LIMIT
            && self.p99_of_breaker <= LIMIT_OF_BREAKER
            && self.upstream_calls == 0
            && self.recovery <= LIMIT_OF_RECOVERY
    }
}
