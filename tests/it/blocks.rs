//! Blocks: several nodes on one PostgreSQL open holds in memory, and spend no more than there is.

use std::time::Duration;

use tempfile::TempDir;
use tests::ledger::create_users;
use tests::ledger::random::Random;
use tests::patiently;
use tests::stores::Postgres;
use tokio::task::JoinSet;
use tokio::time::Instant;
use weir_ledger::verify::verify;
use weir_ledger::{
    Action, BootId, Budget, BudgetPart, BudgetWindow, Credits, HoldId, LeaseSettings, Ledger,
    LedgerError, LedgerRefusal, LedgerStore, OpenHold, Operation, OperationEffect, OperationId,
    SetBudgets, TopUp,
};
use weir_storage::Database;
use weir_storage::clock::{Clock, ManualClock, Millis};
use weir_storage::database::SqlDialect;
use weir_storage::secrets::SecretUrl;

use crate::ledger::{FREE, NOW, account, alice, is_sound, open, settle, soon};

/// The settlements in accounts.
pub(crate) const SETTLED: &str =
    "SELECT CAST(COUNT(*) AS BIGINT) FROM entries WHERE kind = 'settlement'";

/// Nodes with databases of their own, as in different processes.
pub(crate) struct Nodes {
    url: SecretUrl,
    /// SQLite's folder.
    _folder: Option<TempDir>,
    pub(crate) clock: ManualClock,
    pub(crate) ledgers: Vec<Ledger>,
    /// The database of each ledger.
    pub(crate) databases: Vec<Database>,
    pub(crate) database: Database,
}

impl Nodes {
    pub(crate) async fn start(number: usize) -> Self {
        Self::start_on(SqlDialect::Postgres, number).await
    }

    async fn start_on(dialect: SqlDialect, number: usize) -> Self {
        let (url, folder) = match dialect {
            SqlDialect::Sqlite => {
                let folder = tempfile::tempdir().expect("a folder");
                let file = folder.path().join("weir.db");
                let url = SecretUrl::new(format!("sqlite:{}", file.display()));
                (url, Some(folder))
            }
            SqlDialect::Postgres => (Postgres::shared().create_database().await, None),
        };
        let database = Database::open(&url).await.expect("a database");
        create_users(&database, ["alice"].into_iter(), NOW.0).await;
        let mut nodes = Self {
            url,
            _folder: folder,
            clock: ManualClock::at(NOW),
            ledgers: Vec::new(),
            databases: Vec::new(),
            database,
        };
        for _ in 0..number {
            nodes.another(LeaseSettings::default()).await;
        }
        nodes
    }

    pub(crate) async fn another(&mut self, lease: LeaseSettings) -> Ledger {
        let database = Database::open(&self.url).await.expect("a database");
        let clock = Clock::Manual(self.clock.clone());
        let ledger = Ledger::start(database.clone(), clock, lease).await;
        let ledger = ledger.expect("a ledger");
        self.databases.push(database);
        self.ledgers.push(ledger.clone());
        ledger
    }

    /// Serves a request on each node, so that each has a block. The requests cost a micro-credit each, and all nodes see it.
    pub(crate) async fn with_blocks(number: usize) -> Self {
        let nodes = Self::ready_on(SqlDialect::Postgres, number).await;
        assert_eq!(nodes.blocks().await, number as i64);
        nodes
    }

    /// Serves a request on each node, so that it opens the next one in memory.
    pub(crate) async fn ready_on(dialect: SqlDialect, number: usize) -> Self {
        let nodes = Self::start_on(dialect, number).await;
        for (node, ledger) in nodes.ledgers.iter().enumerate() {
            let hold = format!("first{node}");
            request(ledger, open(&hold, 1_000)).await.expect("enough");
            end(ledger, &hold, 1).await;
        }
        patiently(async {
            while nodes.number(SETTLED).await != number as i64 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        nodes
    }

    pub(crate) async fn blocks(&self) -> i64 {
        self.number("SELECT CAST(COUNT(*) AS BIGINT) FROM blocks")
            .await
    }

    pub(crate) async fn stored_holds(&self) -> i64 {
        self.number("SELECT CAST(COUNT(*) AS BIGINT) FROM holds")
            .await
    }

    pub(crate) async fn number(&self, query: &'static str) -> i64 {
        let number = sqlx::query_scalar(query).fetch_one(self.database.reader());
        number.await.expect("a number")
    }
}

pub(crate) async fn request(ledger: &Ledger, open: OpenHold) -> Result<(), LedgerError> {
    request_until(ledger, open, soon()).await
}

async fn request_until(
    ledger: &Ledger,
    open: OpenHold,
    deadline: Instant,
) -> Result<(), LedgerError> {
    let opened = ledger.open_request(&alice(), open, None, deadline).await;
    opened.map(drop)
}

/// Opens a hold, and again while other nodes are slow to return their blocks.
async fn patient_request(ledger: &Ledger, open: OpenHold) -> Result<(), LedgerError> {
    loop {
        match request(ledger, open.clone()).await {
            Err(LedgerError::Busy) => {}
            opened => return opened,
        }
    }
}

pub(crate) async fn end(ledger: &Ledger, hold: &str, credits: i64) {
    let settled = ledger.settle(&alice(), settle(hold, credits), soon()).await;
    assert_eq!(settled.expect("a hold").charged.micro(), credits);
}

fn insufficient(required: i64, available: i64) -> Result<(), LedgerError> {
    Err(LedgerError::Refused(LedgerRefusal::Insufficient {
        required: Credits::from_micro(required),
        available: Credits::from_micro(available),
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_open_from_their_blocks_without_a_write() {
    let nodes = Nodes::with_blocks(2).await;
    for (node, ledger) in nodes.ledgers.iter().enumerate() {
        let hold = open(&format!("h{node}"), 1_000);
        request(ledger, hold).await.expect("enough");
    }
    assert_eq!(nodes.stored_holds().await, 0);
    // Each node shows its own holds in memory, and nothing of a block that no hold has.
    for ledger in &nodes.ledgers {
        let available = account(ledger).await.available().total();
        assert_eq!(available.micro(), FREE - 2 - 1_000);
    }
    for (node, ledger) in nodes.ledgers.iter().enumerate() {
        end(ledger, &format!("h{node}"), 300).await;
    }
    // The second node folds its log meanwhile.
    patiently(async {
        while account(&nodes.ledgers[0]).await.available().total().micro() != FREE - 2 - 600 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    is_sound(&nodes.database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_at_once_on_two_nodes_get_what_is_there_and_no_more() {
    let nodes = Nodes::with_blocks(2).await;
    let mut requests = JoinSet::new();
    for number in 0..1_000 {
        let ledger = nodes.ledgers[number % 2].clone();
        let hold = open(&format!("h{number}"), (FREE - 2) / 50);
        requests.spawn(async move { patient_request(&ledger, hold).await });
    }
    let outcomes = requests.join_all().await;
    let opened = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(opened, 50);
    let left = (FREE - 2) % 50;
    let refused = insufficient((FREE - 2) / 50, left);
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.is_ok() || *outcome == refused)
    );
    is_sound(&nodes.database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credits_in_the_block_of_another_node_can_be_spent_to_the_last() {
    let nodes = Nodes::with_blocks(2).await;
    let [first, second] = &nodes.ledgers[..] else {
        unreachable!("there are two");
    };
    request(first, open("in memory", 700))
        .await
        .expect("enough");
    let rest = FREE - 2 - 700;
    let too_much = patient_request(second, open("too much", rest + 1)).await;
    assert_eq!(too_much, insufficient(rest + 1, rest));
    // The first node has returned its block, and stored its hold.
    let all = patient_request(second, open("all", rest)).await;
    assert_eq!(all, Ok(()));
    assert_eq!((nodes.blocks().await, nodes.stored_holds().await), (0, 2));
    let refused = request(first, open("nothing left", 1)).await;
    assert_eq!(refused, insufficient(1, 0));
    end(first, "in memory", 700).await;
    end(second, "all", 5).await;
    is_sound(&nodes.database).await;
}

/// It has a lease, and holds a block, but does not respond.
async fn silent_node(nodes: &Nodes, until: Millis) -> LedgerStore {
    let run = BootId::of("silent").expect("a name");
    let store = LedgerStore::of_run(nodes.database.clone(), run.clone());
    let leased = store.renew_lease(&run, NOW, until).await;
    leased.expect("a lease");
    let opening = Operation {
        account: alice(),
        at: NOW,
        action: Action::Open {
            open: open("silent", 1_000),
            boot_id: run,
            claim: None,
        },
    };
    let opened = store.commit(&[opening]).await;
    assert_eq!(opened, Ok(vec![Ok(OperationEffect::Opened)]));
    store
}

#[tokio::test(flavor = "multi_thread")]
async fn the_block_of_a_silent_node_is_missing_until_its_lease_ends() {
    let nodes = Nodes::start(1).await;
    let ledger = &nodes.ledgers[0];
    silent_node(&nodes, Millis(NOW.0 + 20_000)).await;
    assert_eq!(nodes.blocks().await, 1);
    // The credits outside of the block can be spent.
    request(ledger, open("some", FREE / 2))
        .await
        .expect("enough");
    let more = open("more", FREE / 2 - 2_000);
    let busy = request_until(ledger, more, in_a_second()).await;
    assert_eq!(busy, Err(LedgerError::Busy));
    nodes.clock.advance(Duration::from_secs(25));
    patiently(async {
        while nodes.blocks().await > 0 {
            ledger.sweep().await.expect("an answer");
        }
    })
    .await;
    request(ledger, open("more", FREE / 2 - 2_000))
        .await
        .expect("enough");
    is_sound(&nodes.database).await;
}

/// Longer than a node needs to return a block.
fn in_a_second() -> Instant {
    Instant::now() + Duration::from_secs(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_waits_for_a_slow_node_until_its_deadline() {
    let nodes = Nodes::start(1).await;
    let ledger = &nodes.ledgers[0];
    let slow = silent_node(&nodes, Millis(NOW.0 + 20_000)).await;
    let patient = {
        let ledger = ledger.clone();
        let hold = open("patient", FREE - 1_000);
        tokio::spawn(async move { request(&ledger, hold).await })
    };
    let (hold, deadline) = (open("hasty", FREE - 1_000), in_a_second());
    let busy = request_until(ledger, hold, deadline).await;
    assert_eq!(busy, Err(LedgerError::Busy));
    assert!(deadline <= Instant::now(), "it waits until then");
    // The node returns its block only now.
    let end = Operation {
        account: alice(),
        at: NOW,
        action: Action::EndBlocks {
            boot_id: BootId::of("silent").expect("a name"),
            unless_leased: false,
        },
    };
    slow.commit(&[end]).await.expect("a commit");
    assert_eq!(patient.await.expect("no panic"), Ok(()));
    is_sound(&nodes.database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_opens_nothing_from_a_block_that_others_returned_after_its_lease() {
    let nodes = Nodes::start(1).await;
    let run = BootId::of("silent").expect("a name");
    let store = silent_node(&nodes, Millis(NOW.0 + 20_000)).await;
    let unopened = |hold: &str, store: &LedgerStore| {
        store.open_in_memory(&alice(), NOW, open(hold, 1_000), &run)
    };
    assert!(unopened("a", &store).is_none(), "from the block");
    nodes.clock.advance(Duration::from_secs(25));
    patiently(async {
        while nodes.blocks().await > 0 {
            nodes.ledgers[0].sweep().await.expect("an answer");
        }
    })
    .await;
    store.forget(1);
    assert!(
        unopened("b", &store).is_some(),
        "the block is not its own any more"
    );
    // The request that it had begun is charged.
    let settled = Operation {
        account: alice(),
        at: NOW,
        action: Action::Settle(settle("a", 900)),
    };
    let outcomes = store.commit(&[settled]).await.expect("a commit");
    let charged = OperationEffect::Settled {
        charged: Credits::from_micro(900),
        overrun: Credits::ZERO,
    };
    assert_eq!(outcomes, [Ok(charged)]);
    is_sound(&nodes.database).await;
}

/// A sweep may have found the node's blocks before it renewed its lease, and reach the database only afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_sweep_leaves_the_blocks_of_a_node_that_has_come_back() {
    let nodes = Nodes::start(1).await;
    let run = BootId::of("silent").expect("a name");
    let store = silent_node(&nodes, Millis(NOW.0 + 20_000)).await;
    let sweeper = LedgerStore::new(nodes.database.clone());
    let returned_at = async |at: i64| {
        let end = Operation {
            account: alice(),
            at: Millis(NOW.0 + at),
            action: Action::EndBlocks {
                boot_id: run.clone(),
                unless_leased: true,
            },
        };
        let outcomes = sweeper.commit(&[end]).await;
        assert_eq!(outcomes, Ok(vec![Ok(OperationEffect::BlocksChanged)]));
        nodes.blocks().await
    };
    // The sweep has seen a lease that ends at 20 s, and the node has renewed it at 25 s.
    let renewed = store.renew_lease(&run, Millis(NOW.0 + 25_000), Millis(NOW.0 + 45_000));
    renewed.await.expect("a lease");
    assert_eq!(returned_at(26_000).await, 1);
    let unopened = store.open_in_memory(&alice(), NOW, open("a", 1_000), &run);
    assert!(unopened.is_none(), "from the block");
    // Not even after the lease, as long as nothing keeps the node from appending to its log.
    assert_eq!(returned_at(46_000).await, 1);
    nodes.clock.advance(Duration::from_secs(46));
    patiently(async {
        while nodes.blocks().await > 0 {
            nodes.ledgers[0].sweep().await.expect("an answer");
        }
    })
    .await;
}

fn key() -> BudgetPart {
    BudgetPart::Key("key".to_owned())
}

async fn set_budget(ledger: &Ledger, credits: i64) {
    let set = SetBudgets {
        part: Some(key()),
        until: None,
        budgets: vec![Budget {
            credits: Credits::from_micro(credits),
            window: BudgetWindow::Day,
        }],
        ended: Vec::new(),
    };
    let set = Action::SetBudgets(Box::new(set));
    let done = ledger.submit(&alice(), set, soon()).await;
    done.expect("a budget");
}

fn of_key(hold: &str, amount: i64) -> OpenHold {
    OpenHold {
        parts: vec![key()],
        ..open(hold, amount)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_holds_on_two_nodes_with_blocks() {
    let nodes = Nodes::with_blocks(2).await;
    // Requests of the key in memory, before it has a budget.
    for (node, ledger) in nodes.ledgers.iter().enumerate() {
        let hold = of_key(&format!("before{node}"), 1_000);
        request(ledger, hold).await.expect("enough");
    }
    set_budget(&nodes.ledgers[0], 100_000).await;
    // The blocks are back, so that the budget counts from now.
    assert_eq!(nodes.blocks().await, 0);
    let mut requests = JoinSet::new();
    for number in 0..100 {
        let ledger = nodes.ledgers[number % 2].clone();
        let hold = of_key(&format!("h{number}"), 2_000);
        requests.spawn(async move { patient_request(&ledger, hold).await });
    }
    let outcomes = requests.join_all().await;
    let opened = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(opened, 50);
    let is_over_budget = |outcome: &&Result<(), LedgerError>| {
        matches!(
            outcome,
            Err(LedgerError::Refused(LedgerRefusal::OverBudget(_)))
        )
    };
    assert_eq!(outcomes.iter().filter(is_over_budget).count(), 50);
    is_sound(&nodes.database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_counts_for_the_budget_of_its_key() {
    let nodes = Nodes::start(2).await;
    let [first, second] = &nodes.ledgers[..] else {
        unreachable!("there are two");
    };
    set_budget(first, 100_000).await;
    request(first, of_key("first", 1_000))
        .await
        .expect("enough");
    request(first, of_key("second", 1_000))
        .await
        .expect("enough");
    assert_eq!(nodes.stored_holds().await, 1, "the second is in memory");
    // All of the key's budget can be spent, wherever the block is.
    let all = patient_request(second, of_key("all", 98_000)).await;
    assert_eq!(all, Ok(()));
    let refused = patient_request(first, of_key("none", 1)).await;
    assert!(matches!(
        refused,
        Err(LedgerError::Refused(LedgerRefusal::OverBudget(_)))
    ));
    is_sound(&nodes.database).await;
}

/// An agent's request draws on its swarm's hold, for which the budget does not count.
#[tokio::test(flavor = "multi_thread")]
async fn an_agents_request_gets_the_budget_in_any_nodes_block() {
    for other in [0, 1] {
        let nodes = Nodes::start(2).await;
        let agents = &nodes.ledgers[0];
        set_budget(agents, 100_000).await;
        request(agents, open("swarm", 200_000))
            .await
            .expect("enough");
        let first = of_key("first", 1_000);
        let first = patient_request(&nodes.ledgers[other], first).await;
        first.expect("enough");
        let of_agent = |hold: &str, amount| OpenHold {
            parent: Some(HoldId("swarm".to_owned())),
            ..of_key(hold, amount)
        };
        let refused = patient_request(agents, of_agent("too much", 99_001)).await;
        let Err(LedgerError::Refused(LedgerRefusal::OverBudget(exceeded))) = refused else {
            panic!("{refused:?}");
        };
        let standing = exceeded.standing;
        assert_eq!(
            (standing.held.micro(), standing.left.micro()),
            (1_000, 99_000)
        );
        let all = patient_request(agents, of_agent("all", 99_000)).await;
        assert_eq!(all, Ok(()));
        is_sound(&nodes.database).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_credits_are_spent_first_on_every_node() {
    let nodes = Nodes::with_blocks(2).await;
    let first = &nodes.ledgers[0];
    let bought = Action::TopUp(TopUp {
        id: OperationId("pay".to_owned()),
        credits: Credits::from_micro(FREE),
        within: None,
    });
    let bought = first.submit(&alice(), bought, soon()).await;
    bought.expect("bought credits");
    // The last one needs more than the plan has outside of the second node's block, which it calls back.
    let amount = FREE / 10;
    for number in 0..10 {
        let hold = format!("h{number}");
        let amount = if number < 9 { amount } else { amount - 1_000 };
        patient_request(first, open(&hold, amount))
            .await
            .expect("enough");
        end(first, &hold, amount).await;
    }
    patiently(async {
        while nodes.blocks().await > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let before = account(first).await.balance;
    assert!(before.top_up.micro() > FREE - amount, "{before:?}");
    for (node, ledger) in nodes.ledgers.iter().enumerate() {
        let hold = format!("last{node}");
        let half = before.plan.micro() / 2;
        patient_request(ledger, open(&hold, half))
            .await
            .expect("enough");
        end(ledger, &hold, half).await;
    }
    let after = account(first).await.balance;
    assert_eq!(after.top_up, before.top_up, "{before:?}, {after:?}");
    is_sound(&nodes.database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_returns_its_blocks() {
    let nodes = Nodes::with_blocks(2).await;
    nodes.ledgers[0].stop().await;
    assert_eq!(nodes.blocks().await, 1);
    let all = patient_request(&nodes.ledgers[1], open("all", FREE - 2)).await;
    assert_eq!(all, Ok(()));
    is_sound(&nodes.database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_is_not_used_is_returned() {
    let mut nodes = Nodes::start(0).await;
    let lease = LeaseSettings {
        renew_every: Duration::from_millis(50),
        ..LeaseSettings::default()
    };
    let ledger = nodes.another(lease).await;
    request(&ledger, open("first", 1_000))
        .await
        .expect("enough");
    request(&ledger, open("in memory", 1_000))
        .await
        .expect("enough");
    assert_eq!(nodes.blocks().await, 1);
    nodes.clock.advance(Duration::from_secs(61));
    patiently(async {
        while nodes.blocks().await > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(nodes.stored_holds().await, 2);
    end(&ledger, "in memory", 7).await;
    is_sound(&nodes.database).await;
}

/// A client of one node: it opens, settles and releases at random. Returns the sum of the charges.
async fn random_client(ledger: Ledger, seed: u64) -> i64 {
    let mut random = Random::new(seed);
    let mut charged = 0;
    for number in 0..60 {
        let hold = format!("s{seed}h{number}");
        // Often a large part of the balance, so that nodes need each other's blocks.
        let amount = match random.below(6) {
            0 => random.up_to(FREE / 2),
            _ => random.up_to(FREE / 200),
        };
        match request(&ledger, open(&hold, amount)).await {
            Ok(()) => {}
            Err(LedgerError::Busy | LedgerError::Refused(LedgerRefusal::Insufficient { .. })) => {
                continue;
            }
            Err(other) => panic!("{other}"),
        }
        if random.percent(10) {
            let released = ledger.release(&alice(), HoldId(hold), None, soon()).await;
            released.expect("a hold");
            continue;
        }
        let price = random.up_to(amount.min(FREE / 400));
        let settled = ledger.settle(&alice(), settle(&hold, price), soon()).await;
        let settled = settled.expect("a hold");
        assert_eq!(settled.overrun, Credits::ZERO, "the hold covers its price");
        charged += settled.charged.micro();
    }
    charged
}

#[tokio::test(flavor = "multi_thread")]
async fn random_clients_of_three_nodes_are_charged_what_they_were_told() {
    let nodes = Nodes::start(3).await;
    let mut clients = JoinSet::new();
    for seed in 0..12 {
        let ledger = nodes.ledgers[seed as usize % 3].clone();
        clients.spawn(random_client(ledger, seed));
    }
    let charged: i64 = clients.join_all().await.into_iter().sum();
    // A reader folds the log of its own node only.
    for ledger in &nodes.ledgers[1..] {
        account(ledger).await;
    }
    let found = account(&nodes.ledgers[0]).await;
    assert_eq!(found.balance.total().micro(), FREE - charged);
    for ledger in &nodes.ledgers {
        ledger.stop().await;
    }
    assert_eq!((nodes.blocks().await, nodes.stored_holds().await), (0, 0));
    let violations = verify(&nodes.database, NOW).await.expect("an answer");
    assert_eq!(violations, []);
}
