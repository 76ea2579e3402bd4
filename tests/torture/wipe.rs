//! L9: the cache is emptied while a balance is completely held, many times.

use std::time::Duration;

use tests::gateway::{Builder, top_up};
use tests::stores::{Durability, Postgres, Redis};
use tests::{EventStream, Gate, Gateway, Reply, Upstream, chat};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use weir_ledger::{Credits, Plan};

use crate::load::{self, Heard};
use crate::money::{self, Books, HOLD, Totals};
use crate::process::{Providers, Stores, provider, shown, wait_until};

/// Open streams; the initial balance is enough for no more.
const HELD: usize = 200;

/// A user has at most ten keys, and each new node makes one.
const WIPES: usize = 8;

/// Growth of the balance before each wipe, and again after it, in requests.
const PAID_FOR: usize = 5;

/// Time under load before each wipe, and after it.
const BETWEEN: Duration = Duration::from_millis(750);

/// Time in which every hold ends once the streams may.
const SETTLING: Duration = Duration::from_secs(20);

pub(crate) fn run() -> bool {
    let gateways = crate::runtime(2);
    let clients = crate::runtime(2);
    let postgres = Postgres::start(Durability::Real);
    let database =
        |on_postgres: bool| on_postgres.then(|| gateways.block_on(postgres.create_database()));
    let mut sound = true;
    for on_postgres in [false, true] {
        let redis = Redis::start();
        let stores = Stores {
            postgres: database(on_postgres),
            redis: Some(redis.url()),
        };
        let name = if on_postgres { "PostgreSQL" } else { "SQLite" };
        let wiped = clients.block_on(torment(&gateways, &stores, || {
            let answer = redis.command("FLUSHALL");
            assert!(answer.ends_with("+OK\r\n"), "{answer}");
            Wipe::Emptied
        }));
        sound &= wiped.report(&format!("{name}, Redis flushed"));
    }
    let stores = Stores {
        postgres: database(true),
        redis: None,
    };
    // The in-process cache is lost with its process, and a new node has an empty one.
    let wiped = clients.block_on(torment(&gateways, &stores, || Wipe::NewNode));
    sound & wiped.report("PostgreSQL, requests move to a node whose cache in process is empty")
}

enum Wipe {
    Emptied,
    NewNode,
}

struct Wiped {
    heard: Vec<Heard>,
    calls: usize,
    held_calls: usize,
    held_paid: usize,
    closed: Option<Duration>,
    totals: Totals,
    balance: Credits,
    sound: bool,
}

async fn torment(gateways: &Runtime, stores: &Stores, wipe: impl Fn() -> Wipe) -> Wiped {
    // Every response uses its complete hold.
    let (input, output) = (money::TOKENS_INPUT, money::TOKENS_OUTPUT);
    let providers = Providers::start(
        Reply::chat_with_usage("paid", input, output),
        Reply::chat_stream_with_usage(["pa", "id"], input, output),
    )
    .await;
    let (held, gate) = (Upstream::start().await, Gate::new());
    held.always(
        Reply::chat_stream_with_usage(["wait", "ing"], input, output).gate_before_piece(1, &gate),
    );
    let tables = format!("{}{}", providers.tables(), provider("held", &held));
    let builder = || node(stores, &tables);
    let first = start(gateways, builder()).await;
    let give = async |holds: usize| {
        let credits = Credits::from_micro(HOLD.micro() * holds as i64);
        top_up(first.app(), money::USER, credits).await;
    };
    let plan = Plan::Free.monthly_credits();
    let rest = Credits::from_micro(HOLD.micro() * HELD as i64 - plan.micro());
    top_up(first.app(), money::USER, rest).await;
    let mut streams = JoinSet::new();
    for _ in 0..HELD {
        let client = first.client();
        streams.spawn(async move {
            let mut stream = client.stream("/chat", &chat("held", money::TEXT)).await;
            assert_eq!(stream.status, 200, "the balance is enough for it");
            stream.next_chunk().await;
            stream
        });
    }
    let streams: Vec<EventStream> = streams.join_all().await;

    let mut heard = Vec::new();
    let mut others: Vec<Gateway> = Vec::new();
    for _ in 0..WIPES {
        let client = others.last().unwrap_or(&first).client();
        let (stop, stopped) = watch::channel(false);
        let load = tokio::spawn(load::chats(client, stopped));
        give(PAID_FOR).await;
        tokio::time::sleep(BETWEEN).await;
        if let Wipe::NewNode = wipe() {
            let node = start(gateways, builder().sharing_secrets_of(&first)).await;
            others.push(node);
        }
        give(PAID_FOR).await;
        tokio::time::sleep(BETWEEN).await;
        stop.send_replace(true);
        heard.extend(load.await.expect("no panic"));
    }
    gate.open();
    let mut whole = JoinSet::new();
    for stream in streams {
        whole.spawn(stream.is_whole());
    }
    let whole = whole.join_all().await;
    let books = Books::of(&first);
    let closed = wait_until(SETTLING, async || books.totals().await.open == 0).await;
    Wiped {
        heard,
        calls: providers.calls(),
        held_calls: held.count(),
        held_paid: whole.into_iter().filter(|whole| *whole).count(),
        closed,
        totals: books.totals().await,
        balance: books.balance(money::USER).await,
        sound: books.are_sound().await,
    }
}

fn node(stores: &Stores, tables: &str) -> Builder {
    let mut builder = Gateway::builder().credits(0).tables(tables);
    if let Some(url) = &stores.postgres {
        builder = builder.postgres(url);
    }
    if let Some(url) = &stores.redis {
        builder = builder.redis(url);
    }
    builder
}

async fn start(gateways: &Runtime, builder: Builder) -> Gateway {
    gateways.spawn(builder.start()).await.expect("it starts")
}

impl Wiped {
    fn report(&self, name: &str) -> bool {
        let of = |code| {
            let is_it = |heard: &&Heard| heard.code.as_deref() == Some(code);
            self.heard.iter().filter(is_it).count()
        };
        let refused = of("QUOTA_EXCEEDED");
        let paid = |heard: &&Heard| heard.paid == Some(HOLD);
        let paid = self.heard.iter().filter(paid).count();
        let otherwise = self.heard.len() - refused - paid;
        println!(
            "L9: {name} {WIPES} times over {HELD} open holds: {paid} requests paid (the balance was enough for \
             {}), {refused} refused, {otherwise} otherwise; {} upstream calls for them; of the streams {} asked and {} \
             paid; {} overspent, {} left, last open hold gone after {}, ledger sound: {}",
            2 * WIPES * PAID_FOR,
            self.calls,
            self.held_calls,
            self.held_paid,
            Credits::from_micro(self.totals.overrun),
            self.balance,
            shown(self.closed),
            self.sound,
        );
        if otherwise > 0 {
            let odd = |heard: &&Heard| {
                heard.paid != Some(HOLD) && heard.code.as_deref() != Some("QUOTA_EXCEEDED")
            };
            let odd: Vec<_> = self.heard.iter().filter(odd).take(3).collect();
            println!("L9: otherwise, for instance: {odd:?}");
        }
        let everything = (HELD + paid) as i64;
        paid == 2 * WIPES * PAID_FOR
            && refused > 0
            && (otherwise, self.calls) == (0, paid)
            && (self.held_calls, self.held_paid) == (HELD, HELD)
            && self.totals.charged == everything
            && self.totals.credits == everything * HOLD.micro()
            && (self.totals.overrun, self.balance) == (0, Credits::ZERO)
            && self.closed.is_some()
            && self.sound
    }
}
