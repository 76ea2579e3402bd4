//! L4: weir is killed under load and started again, many times.

use std::time::{Duration, Instant};

use tests::stores::{Durability, Postgres};
use tests::{Client, Reply};
use tokio::sync::watch;
use weir_ledger::Credits;

use crate::load::{self, Heard};
use crate::money::{self, Books, Totals, price};
use crate::process::{Node, Providers, Stores, shown, wait_until};

/// Kills on each database.
const KILLS: u32 = 100;

const KILLS_PER_REPORT: u32 = 25;

/// Requests at a kill that are too young for a checkpoint, and cost nothing: all of the last 200 ms.
const YOUNG_PER_KILL: u32 = load::REQUESTS_PER_SECOND / 5;

/// Enough for all requests.
const TOP_UP: &str = "10000000";

const LEASE: Duration = Duration::from_secs(3);
const SWEEP: Duration = Duration::from_secs(1);

/// Allowed delay of a sweep: a node is down, starting, or busy with other work.
const SWEEP_MARGIN: Duration = Duration::from_secs(1);

/// Time limit for a started node to serve.
const SERVING: Duration = Duration::from_secs(2);

/// Period of checkpoints; a due checkpoint is written with the next piece.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(100);

/// A piece of a streamed response: 150 tokens by its bytes.
const PIECE_BYTES: usize = 600;
const PIECE_TOKENS: u64 = PIECE_BYTES as u64 / BYTES_PER_TOKEN;
const PIECES: usize = 12;
const TOKENS: u64 = PIECES as u64 * PIECE_TOKENS;
const BYTES_PER_TOKEN: u64 = 4;

/// The time between two pieces.
const PAUSE: Duration = Duration::from_millis(40);

/// Pieces until a checkpoint is due.
const CHECKPOINT_PIECES: u64 = CHECKPOINT_EVERY.as_millis().div_ceil(PAUSE.as_millis()) as u64;

pub(crate) fn run() -> bool {
    let runtime = crate::runtime(2);
    let postgres = Postgres::start(Durability::Real);
    let on_sqlite = kills(&runtime, "SQLite", &Stores::default());
    let stores = Stores {
        postgres: Some(runtime.block_on(postgres.create_database())),
        redis: None,
    };
    let on_postgres = kills(&runtime, "PostgreSQL", &stores);
    on_sqlite && on_postgres
}

fn kills(runtime: &tokio::runtime::Runtime, database: &str, stores: &Stores) -> bool {
    let piece = "word ".repeat(PIECE_BYTES / 5);
    let plain = Reply::chat_with_usage(&piece, money::TOKENS_INPUT, 150);
    let stream = Reply::chat_stream_with_usage([&*piece; PIECES], money::TOKENS_INPUT, TOKENS);
    let providers = runtime.block_on(Providers::start(
        plain.after(Duration::from_millis(100)),
        stream.pausing(PAUSE),
    ));
    let ledger = format!(
        "[ledger]\nlease_ms = {}\nrenew_ms = {}\ncheckpoint_ms = {}\n",
        LEASE.as_millis(),
        SWEEP.as_millis(),
        CHECKPOINT_EVERY.as_millis()
    );
    let mut node = Node::new(stores, &format!("{ledger}{}", providers.tables()));
    let client = runtime.block_on(node.member_client(TOP_UP));
    node.start();

    let (stop, stopped) = watch::channel(false);
    let load = runtime.spawn(load::run(client.clone(), stopped));
    let (mut started, mut serving) = (Vec::new(), Vec::new());
    let mut served_all = true;
    for kill in 1..=KILLS {
        // Each kill hits another moment of the requests under way.
        std::thread::sleep(Duration::from_millis(150 + u64::from(kill * 37 % 250)));
        node.kill();
        let began = Instant::now();
        node.start();
        started.push(began.elapsed());
        let served = runtime.block_on(wait_until(SERVING, async || is_served(&client).await));
        served_all &= served.is_some();
        serving.push(began.elapsed());
        if kill % KILLS_PER_REPORT == 0 {
            println!(
                "L4: {database}: {kill} kills, {} upstream calls so far, started in {:.0?} at most, serving in {:.0?}",
                providers.calls(),
                started.iter().max().expect("some"),
                serving.iter().max().expect("some"),
            );
        }
    }
    stop.send_replace(true);
    let heard = runtime.block_on(load).expect("no panic");
    let closed = runtime.block_on(async {
        let books = node.books().await;
        // The load is over, so no request opens a hold any more.
        let limit = LEASE + SWEEP + SWEEP_MARGIN;
        let closed = wait_until(limit, async || books.totals().await.open == 0).await;
        books.close().await;
        closed
    });
    let sound = node.is_sound();
    let panics = node.panics();
    node.kill();
    let outcome = runtime.block_on(async {
        let books = node.books().await;
        Outcome::of(&books, &heard, &providers).await
    });
    let is_right = outcome.report(database, &heard);
    println!(
        "L4: {database}: {KILLS} kills: all served within {SERVING:.0?} again: {served_all}; last open hold gone \
         {} after the load (limit {LEASE:.0?} + {SWEEP:.0?}), ledger sound: {sound}, {panics} panics",
        shown(closed)
    );
    served_all && closed.is_some() && sound && panics == 0 && is_right
}

async fn is_served(client: &Client) -> bool {
    load::ask(client, false).await.paid.is_some()
}

struct Outcome {
    calls: i64,
    totals: Totals,
    delivered: usize,
    /// Complete responses without a settled hold of the reported charge.
    uncharged: usize,
    /// Streams that broke after at least one due checkpoint.
    cut: usize,
    /// Maximum tokens that such a stream had delivered beyond its charge.
    shortfall: u64,
    /// Streams that were charged for more than was possible.
    overcharged: usize,
    latest_expiry: Duration,
}

impl Outcome {
    async fn of(books: &Books, heard: &[Heard], providers: &Providers) -> Self {
        let charges = books.charges().await;
        let of = |heard: &Heard| charges.get(heard.request_id.as_ref()?);
        let delivered = heard.iter().filter(|heard| heard.paid.is_some());
        let uncharged = heard.iter().filter(|heard| heard.is_lost(&charges));
        for lost in uncharged.clone().take(3) {
            println!(
                "L4: without its charge: {lost:?}, in the ledger: {:?}",
                of(lost)
            );
        }
        let cut = heard.iter().filter(|heard| {
            let tokens = heard.bytes as u64 / BYTES_PER_TOKEN;
            heard.paid.is_none() && tokens > CHECKPOINT_PIECES * PIECE_TOKENS
        });
        let short = cut.clone().map(|heard| {
            let charged = of(heard).map_or(0, |charge| charge.tokens_output);
            (heard.bytes as u64 / BYTES_PER_TOKEN).saturating_sub(charged as u64)
        });
        let most = price(money::TOKENS_INPUT, TOKENS);
        Self {
            calls: providers.calls() as i64,
            totals: books.totals().await,
            delivered: delivered.count(),
            uncharged: uncharged.count(),
            cut: cut.clone().count(),
            shortfall: short.max().unwrap_or(0),
            overcharged: charges.values().filter(|it| it.credits > most).count(),
            latest_expiry: Duration::from_millis(books.latest_expiry_ms().await.max(0) as u64),
        }
    }

    fn report(&self, database: &str, heard: &[Heard]) -> bool {
        let Totals {
            holds,
            open,
            charged,
            expired,
            credits,
            overrun,
        } = self.totals;
        // The checkpoint due at the process's end, and the pieces that arrived during its write.
        let limit = (2 * CHECKPOINT_PIECES + 1) * PIECE_TOKENS;
        let latest = SWEEP + SWEEP_MARGIN;
        println!(
            "L4: {database}: {} requests, {holds} holds, {} upstream calls: {charged} charged ({} credits), {expired} \
             by a sweep, at most {:.1?} after the lease (limit {latest:.0?}); {open} open",
            heard.len(),
            self.calls,
            Credits::from_micro(credits),
            self.latest_expiry,
        );
        println!(
            "L4: {database}: {} answers delivered in full, {} of them without their charge; of {} streams cut after a \
             checkpoint, none charged for more than {} tokens too little (limit {limit}); {} overcharged",
            self.delivered, self.uncharged, self.cut, self.shortfall, self.overcharged
        );
        self.uncharged == 0
            && self.delivered > 0
            && self.cut > 0
            && self.shortfall <= limit
            && (self.overcharged, open, overrun) == (0, 0, 0)
            // Every charge has a request, and every request has a hold, unless its hold was in memory at a kill.
            && charged <= self.calls
            && self.calls - holds <= i64::from(KILLS * YOUNG_PER_KILL)
            && self.latest_expiry <= latest
    }
}
