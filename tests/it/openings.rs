//! Holds in memory: a request is opened without a write, and no spender notices a difference.

use std::time::Duration;

use tests::ledger::create_users;
use tests::stores::{Postgres, each_database};
use tests::{Gate, Gateway, Reply, Upstream, chat};
use tokio::task::JoinSet;
use weir_ledger::{
    Action, Adjust, Budget, BudgetPart, BudgetWindow, ChangeDirection, Checkpoint, Credits, HoldId,
    LeaseSettings, Ledger, LedgerError, LedgerRefusal, OpenHold, OperationId, Pool, SetBudgets,
};
use weir_storage::Database;
use weir_storage::clock::{Clock, ManualClock};
use weir_storage::secrets::SecretUrl;

use crate::ledger::{FREE, NOW, account, alice, is_sound, open, settle, soon, usage};

/// Starts a ledger with an account that a batch has loaded before, and on PostgreSQL with a block.
async fn start(database: &Database, clock: &ManualClock) -> Ledger {
    create_users(database, ["alice"].into_iter(), NOW.0).await;
    let lease = LeaseSettings {
        longest_request: Duration::from_secs(10),
        ..LeaseSettings::default()
    };
    let ledger = Ledger::start(database.clone(), Clock::Manual(clock.clone()), lease);
    let ledger = ledger.await.expect("a ledger");
    let first = ledger.submit(&alice(), Action::ResetPeriod, soon()).await;
    first.expect("a period");
    request(&ledger, "first", 1).await.expect("enough");
    let hold = HoldId("first".to_owned());
    let released = ledger.release(&alice(), hold, None, soon()).await;
    released.expect("a hold");
    ledger
}

async fn request(ledger: &Ledger, hold: &str, amount: i64) -> Result<(), LedgerError> {
    let open = open(hold, amount);
    ledger
        .open_request(&alice(), open, None, soon())
        .await
        .map(drop)
}

async fn available(ledger: &Ledger) -> i64 {
    account(ledger).await.available().total().micro()
}

async fn stored_holds(database: &Database) -> i64 {
    sqlx::query_scalar("SELECT CAST(COUNT(*) AS BIGINT) FROM holds")
        .fetch_one(database.reader())
        .await
        .expect("a number")
}

fn take(credits: i64) -> Action {
    Action::Adjust(Adjust {
        id: OperationId(format!("take_{credits}")),
        way: ChangeDirection::Take,
        pool: Pool::Plan,
        credits: Credits::from_micro(credits),
        reason: "a test".to_owned(),
        actor: "ops".to_owned(),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_written_once_and_shows_as_held_before() {
    each_database(async |stores| {
        let database = &stores.database;
        let ledger = start(database, &ManualClock::at(NOW)).await;
        request(&ledger, "a", 1_000).await.expect("enough");
        request(&ledger, "b", 2_000).await.expect("enough");
        assert_eq!(stored_holds(database).await, 0);
        assert_eq!(available(&ledger).await, FREE - 3_000);
        assert_eq!(ledger.open_holds().await.expect("a number"), 2);

        let settled = ledger.settle(&alice(), settle("a", 400), soon()).await;
        assert_eq!(settled.expect("a hold").charged, Credits::from_micro(400));
        let hold = HoldId("b".to_owned());
        let released = ledger.release(&alice(), hold, None, soon()).await;
        released.expect("a hold");
        assert_eq!(stored_holds(database).await, 0);
        assert_eq!(available(&ledger).await, FREE - 400);
        assert_eq!(ledger.open_holds().await.expect("a number"), 0);
        // A repeat returns the first outcome.
        let again = ledger.settle(&alice(), settle("a", 400), soon()).await;
        assert_eq!(again.expect("a hold").charged, Credits::from_micro(400));
        is_sound(database).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_requests_at_once_get_what_is_there_and_no_more() {
    each_database(async |stores| {
        let ledger = start(&stores.database, &ManualClock::at(NOW)).await;
        let mut requests = JoinSet::new();
        for number in 0..1_000 {
            let ledger = ledger.clone();
            requests.spawn(async move {
                let hold = format!("h{number}");
                let opened = match number % 5 {
                    // Some are durable from the beginning.
                    0 => ledger.open(&alice(), open(&hold, FREE / 50), soon()).await,
                    _ => request(&ledger, &hold, FREE / 50).await,
                };
                opened.is_ok()
            });
        }
        let opened = requests.join_all().await;
        assert_eq!(opened.into_iter().filter(|opened| *opened).count(), 50);
        assert_eq!(available(&ledger).await, 0);
        is_sound(&stores.database).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn held_credits_are_neither_taken_nor_held_again() {
    each_database(async |stores| {
        let database = &stores.database;
        let ledger = start(database, &ManualClock::at(NOW)).await;
        request(&ledger, "a", FREE - 1_000).await.expect("enough");
        let taken = ledger.submit(&alice(), take(1_001), soon()).await;
        let short = |required| LedgerRefusal::Insufficient {
            required: Credits::from_micro(required),
            available: Credits::from_micro(1_000),
        };
        assert_eq!(taken, Err(LedgerError::Refused(short(1_001))));
        let refused = request(&ledger, "b", 1_001).await;
        assert_eq!(refused, Err(LedgerError::Refused(short(1_001))));
        request(&ledger, "c", 1_000).await.expect("all of it");
        let settled = ledger.settle(&alice(), settle("a", FREE), soon()).await;
        let overrun = settled.expect("a hold").overrun;
        assert_eq!(overrun, Credits::from_micro(1_000));
        let settled = ledger.settle(&alice(), settle("c", 1_000), soon()).await;
        assert_eq!(settled.expect("a hold").overrun, Credits::ZERO);
        assert_eq!(available(&ledger).await, 0);
        is_sound(database).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_budget_counts_what_is_held_already() {
    each_database(async |stores| {
        let ledger = start(&stores.database, &ManualClock::at(NOW)).await;
        request(&ledger, "a", 700).await.expect("enough");
        let budget = Budget {
            credits: Credits::from_micro(1_000),
            window: BudgetWindow::Day,
        };
        let set = Action::SetBudgets(Box::new(SetBudgets {
            part: None,
            until: None,
            budgets: vec![budget],
            ended: Vec::new(),
        }));
        let set = ledger.submit(&alice(), set, soon()).await;
        set.expect("a budget");
        let refused = request(&ledger, "b", 301).await;
        assert!(matches!(
            refused,
            Err(LedgerError::Refused(LedgerRefusal::OverBudget(_)))
        ));
        request(&ledger, "c", 300).await.expect("all that is left");
        let state = account(&ledger).await.standings(None, NOW)[0];
        assert_eq!(state.held, Credits::from_micro(1_000));
    })
    .await;
}

/// An agent's request draws on its swarm's hold, and its model has a budget that other requests reserve in memory.
#[tokio::test(flavor = "multi_thread")]
async fn budgets_of_agents_requests_count_holds_in_memory() {
    each_database(async |stores| {
        let ledger = start(&stores.database, &ManualClock::at(NOW)).await;
        let model = BudgetPart::Model("m".to_owned());
        let set = Action::SetBudgets(Box::new(SetBudgets {
            part: Some(model.clone()),
            until: None,
            budgets: vec![Budget {
                credits: Credits::from_micro(10_000),
                window: BudgetWindow::Day,
            }],
            ended: Vec::new(),
        }));
        let set = ledger.submit(&alice(), set, soon()).await;
        set.expect("a budget");
        let of_model = async |hold: &str, parent: Option<&str>, amount| {
            let open = OpenHold {
                parent: parent.map(|parent| HoldId(parent.to_owned())),
                parts: vec![model.clone()],
                ..open(hold, amount)
            };
            let opened = ledger.open_request(&alice(), open, None, soon()).await;
            opened.map(drop)
        };
        request(&ledger, "swarm", 50_000).await.expect("enough");
        let durable = of_model("durable", None, 500).await;
        durable.expect("enough");
        let before = stored_holds(&stores.database).await;
        let in_memory = of_model("in memory", None, 500).await;
        in_memory.expect("enough");
        let after = stored_holds(&stores.database).await;
        assert_eq!(after, before, "the second is in memory");
        let refused = of_model("too much", Some("swarm"), 9_001).await;
        let Err(LedgerError::Refused(LedgerRefusal::OverBudget(exceeded))) = refused else {
            panic!("{refused:?}");
        };
        let standing = exceeded.standing;
        assert_eq!(
            (standing.held.micro(), standing.left.micro()),
            (1_000, 9_000)
        );
        // Blocks give their credits back.
        let all = of_model("all", Some("swarm"), 9_000).await;
        assert_eq!(all, Ok(()));
        is_sound(&stores.database).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_stores_its_hold() {
    each_database(async |stores| {
        let database = &stores.database;
        let clock = ManualClock::at(NOW);
        let ledger = start(database, &clock).await;
        for hold in ["a", "b"] {
            request(&ledger, hold, 1_000).await.expect("enough");
        }
        let checkpoint = Checkpoint {
            hold: HoldId("a".to_owned()),
            credits: Credits::from_micro(30),
            usage: usage(),
        };
        let noted = ledger.checkpoint(&alice(), checkpoint, soon()).await;
        noted.expect("a hold");
        assert_eq!(stored_holds(database).await, 1);
        assert_eq!(available(&ledger).await, FREE - 2_000);
        // A hold must not outlast every possible end of its request, wherever it is.
        clock.advance(Duration::from_secs(11));
        // The node's own sweep may have ended them already.
        ledger.sweep().await.expect("an answer");
        assert_eq!(available(&ledger).await, FREE - 30);
        is_sound(database).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_in_memory_ends_with_its_process_and_costs_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("weir.db");
    let url = SecretUrl::new(format!("sqlite:{}", path.display()));
    let database = Database::open(&url).await.expect("a database");
    let clock = ManualClock::at(NOW);
    let ledger = start(&database, &clock).await;
    request(&ledger, "a", 1_000).await.expect("enough");
    assert_eq!(available(&ledger).await, FREE - 1_000);
    let next = Database::open(&url).await.expect("a database");
    let ledger = Ledger::start(next.clone(), Clock::Manual(clock), LeaseSettings::default());
    let ledger = ledger.await.expect("a ledger");
    assert_eq!(available(&ledger).await, FREE);
    is_sound(&next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_through_the_api_has_no_row_before_its_end() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    upstream.will(Reply::chat("first"));
    gateway.chat("scripted", "hello").await;
    let gate = Gate::new();
    upstream.will(Reply::chat("second").after_gate(&gate));
    let client = gateway.client();
    let asking =
        tokio::spawn(async move { client.post("/chat", &chat("scripted", "hello")).await });
    gate.reached().await;
    let metrics = gateway.stranger().get("/metrics").await;
    assert!(metrics.text().contains("\nweir_ledger_open_holds 1\n"));
    assert_eq!(stored_holds(&gateway.app().database).await, 0);
    gate.open();
    let answer = asking.await.expect("no panic");
    assert_eq!(answer.content(), "second");
    let requests = gateway.client().get("/usage/requests").await.json();
    assert_eq!(requests["requests"].as_array().map(Vec::len), Some(2));
    is_sound(&gateway.app().database).await;
}

/// Requests of each account, one after another.
const REQUESTS: usize = 50;

#[tokio::test(flavor = "multi_thread")]
async fn almost_no_request_waits_for_a_commit_before_it_begins() {
    let postgres = Postgres::shared().create_database().await;
    for url in [None, Some(postgres)] {
        let mut builder = Gateway::builder();
        if let Some(url) = &url {
            builder = builder.postgres(url);
        }
        let gateway = builder.start().await;
        for _ in 0..REQUESTS {
            gateway.chat("demo", "hello").await;
        }
        let metrics = gateway.stranger().get("/metrics").await.text();
        let openings = |place: &str| {
            let series = format!("weir_ledger_openings_total{{place=\"{place}\"}} ");
            let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
            line.map_or(0, |count| count.parse::<usize>().expect("a number"))
        };
        let (in_memory, in_database) = (openings("memory"), openings("database"));
        assert_eq!(in_memory + in_database, REQUESTS, "{metrics}");
        // The first one finds out what the account has.
        assert!(in_database <= REQUESTS / 20, "{in_database}, {url:?}");
    }
}
