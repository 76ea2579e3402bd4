//! Unit tests of operations, case by case. `tests/it/ledger.rs` compares complete histories with an oracle.

use proptest::prelude::*;

use super::*;
use crate::budgets::{Budget, BudgetPart, BudgetWindow, SetBudgets};
use crate::operation::{
    Adjust, ChangeDirection, Checkpoint, EndKey, Grant, IdempotencyClaim, Refund, RequestSource,
    Settle, TopUp,
};

const BORN: Millis = Millis(1_700_000_000_000);

fn now() -> Millis {
    Millis(BORN.0 + 1_000)
}

/// Makes an account with these credits, and without a relevant history.
fn account(plan: i64, top_up: i64) -> Account {
    let mut account = Account::new(AccountId("alice".into()), BORN);
    account.begin_due_period(now());
    account.balance = Pools {
        plan: Credits::from_micro(plan),
        top_up: Credits::from_micro(top_up),
    };
    account.entries = 0;
    account.journal = Journal::default();
    account
}

fn id(hold: &str) -> HoldId {
    HoldId(hold.into())
}

fn opening(hold: &str, amount: i64, parent: Option<&str>) -> Action {
    let open = OpenHold {
        hold: id(hold),
        amount: Credits::from_micro(amount),
        request_id: format!("req_{hold}"),
        parent: parent.map(id),
        source: RequestSource::Web,
        source_id: None,
        parts: Vec::new(),
        top_up_only: false,
        model: "m".into(),
    };
    let boot_id = BootId::of("boot").expect("a name");
    Action::Open {
        open,
        boot_id,
        claim: None,
    }
}

fn usage(tokens_input: i64) -> RequestUsage {
    RequestUsage {
        provider: "p".into(),
        counts: UsageCounts {
            tokens_input,
            ..UsageCounts::default()
        },
        ..RequestUsage::default()
    }
}

fn settling(hold: &str, credits: i64) -> Action {
    Action::Settle(Settle {
        end: None,
        hold: id(hold),
        credits: Credits::from_micro(credits),
        usage: usage(credits),
    })
}

fn checkpoint(hold: &str, credits: i64) -> Action {
    Action::Checkpoint(Checkpoint {
        hold: id(hold),
        credits: Credits::from_micro(credits),
        usage: usage(credits),
    })
}

fn granting(grant_id: &str, credits: i64) -> Action {
    Action::Grant(Grant {
        id: OperationId(grant_id.into()),
        plan: Plan::Pro,
        period: Period {
            start: now(),
            end: now().plus_days(30),
        },
        credits: Credits::from_micro(credits),
    })
}

fn run_at(account: &mut Account, at: Millis, action: Action) -> OperationOutcome {
    let operation = Operation {
        account: account.id.clone(),
        at,
        action,
    };
    let outcome = apply(&operation, account);
    check(account);
    outcome
}

fn run(account: &mut Account, action: Action) -> OperationOutcome {
    run_at(account, now(), action)
}

fn release(hold: &str) -> Action {
    Action::Release {
        hold: id(hold),
        cost: None,
    }
}

fn expire(hold: &str) -> Action {
    Action::Expire { hold: id(hold) }
}

fn charged(plan: i64, overrun: i64) -> (Credits, Credits) {
    (Credits::from_micro(plan), Credits::from_micro(overrun))
}

fn settled(charged_and_overrun: (i64, i64)) -> OperationOutcome {
    let (charged, overrun) = charged(charged_and_overrun.0, charged_and_overrun.1);
    Ok(OperationEffect::Settled { charged, overrun })
}

/// Returns plan and top-up credits: the balance, and the held part.
fn pools(account: &Account) -> [i64; 4] {
    let Account { balance, held, .. } = account;
    [
        balance.plan.micro(),
        balance.top_up.micro(),
        held.plan.micro(),
        held.top_up.micro(),
    ]
}

/// Checks I1 and I2, as far as one account shows them.
fn check(account: &Account) {
    let open = account
        .holds
        .values()
        .filter(|hold| hold.is_open())
        .fold(Pools::default(), |sum, hold| sum.plus(hold.reserved));
    assert_eq!(account.held, open, "held is the sum of open holds");
    assert!(account.held.plan <= account.balance.plan);
    assert!(account.held.top_up <= account.balance.top_up);
    let owes = account.owed > Credits::ZERO;
    assert!(
        !owes || account.held == account.balance,
        "freed credits pay"
    );
    for hold in account.holds.values() {
        assert!(hold.is_open() || hold.reserved == Pools::default());
        assert!(!account.ended.contains_key(&hold.open.hold));
    }
    for (index, entry) in account.journal.entries.iter().enumerate() {
        assert_eq!(entry.sequence, index as i64 + 1);
    }
}

/// Checks that the balance is its old value plus all entries.
fn check_sum(account: &Account, plan: i64, top_up: i64) {
    let entries = &account.journal.entries;
    let sum = |delta: fn(&LedgerEntry) -> Credits| {
        entries
            .iter()
            .map(|entry| delta(entry).micro())
            .sum::<i64>()
    };
    assert_eq!(
        account.balance.plan.micro(),
        plan + sum(|entry| entry.plan_delta)
    );
    assert_eq!(
        account.balance.top_up.micro(),
        top_up + sum(|entry| entry.top_up_delta)
    );
}

#[test]
fn a_hold_takes_plan_credits_first_and_exactly_enough_is_enough() {
    for (plan, top_up, amount, held) in [
        (10, 5, 0, Some([0, 0])),
        (10, 5, 7, Some([7, 0])),
        (10, 5, 10, Some([10, 0])),
        (10, 5, 12, Some([10, 2])),
        (10, 5, 15, Some([10, 5])),
        (10, 5, 16, None),
        (0, 0, 1, None),
    ] {
        let mut account = account(plan, top_up);
        let outcome = run(&mut account, opening("h", amount, None));
        let expected = match held {
            Some(_) => Ok(OperationEffect::Opened),
            None => Err(LedgerRefusal::Insufficient {
                required: Credits::from_micro(amount),
                available: Credits::from_micro(plan + top_up),
            }),
        };
        assert_eq!(outcome, expected, "{amount} of {plan} and {top_up}");
        let [held_plan, held_top_up] = held.unwrap_or_default();
        assert_eq!(pools(&account), [plan, top_up, held_plan, held_top_up]);
    }
}

#[test]
fn holds_count_against_each_other() {
    let mut account = account(10, 0);
    assert_eq!(
        run(&mut account, opening("a", 6, None)),
        Ok(OperationEffect::Opened)
    );
    let refused = LedgerRefusal::Insufficient {
        required: Credits::from_micro(5),
        available: Credits::from_micro(4),
    };
    assert_eq!(run(&mut account, opening("b", 5, None)), Err(refused));
    assert_eq!(
        run(&mut account, opening("c", 4, None)),
        Ok(OperationEffect::Opened)
    );
    assert_eq!(
        run(&mut account, release("a")),
        Ok(OperationEffect::Released)
    );
    assert_eq!(
        run(&mut account, opening("b", 5, None)),
        Ok(OperationEffect::Opened)
    );
}

#[test]
fn a_settlement_posts_what_was_used_and_what_cannot_be_paid_is_our_loss() {
    // A hold of 12 on 10 + 5 takes 10 and 2; 3 more are available.
    for (used, outcome, balance) in [
        (0, (0, 0), [10, 5]),
        (4, (4, 0), [6, 5]),
        (11, (11, 0), [0, 4]),
        (12, (12, 0), [0, 3]),
        (14, (14, 0), [0, 1]),
        (15, (15, 0), [0, 0]),
        (20, (15, 5), [0, 0]),
    ] {
        let mut account = account(10, 5);
        let opened = run(&mut account, opening("h", 12, None));
        assert_eq!(opened, Ok(OperationEffect::Opened));
        assert_eq!(
            run(&mut account, settling("h", used)),
            settled(outcome),
            "{used}"
        );
        assert_eq!(pools(&account), [balance[0], balance[1], 0, 0], "{used}");
        check_sum(&account, 10, 5);
    }
}

#[test]
fn what_others_hold_is_not_available_to_an_overrun() {
    let mut account = account(10, 0);
    assert_eq!(
        run(&mut account, opening("a", 4, None)),
        Ok(OperationEffect::Opened)
    );
    assert_eq!(
        run(&mut account, opening("b", 5, None)),
        Ok(OperationEffect::Opened)
    );
    assert_eq!(run(&mut account, settling("a", 9)), settled((5, 4)));
    assert_eq!(pools(&account), [5, 0, 5, 0]);
    assert_eq!(run(&mut account, settling("b", 5)), settled((5, 0)));
}

#[test]
fn charges_beyond_a_hold_never_pass_a_budget() {
    let of_model = |hold: &str, amount: i64, parent: Option<&str>| {
        let mut action = opening(hold, amount, parent);
        if let Action::Open { open, .. } = &mut action {
            open.parts = vec![BudgetPart::Model("m".into())];
        }
        action
    };
    // The budget of the account, and that of a part for which a parent does not count.
    for part in [None, Some(BudgetPart::Model("m".into()))] {
        let budgeted = |limit: i64| {
            let mut account = account(100, 0);
            let set = Action::SetBudgets(Box::new(SetBudgets {
                part: part.clone(),
                until: None,
                budgets: vec![Budget {
                    credits: Credits::from_micro(limit),
                    window: BudgetWindow::Total,
                }],
                ended: Vec::new(),
            }));
            assert_eq!(run(&mut account, set), Ok(OperationEffect::BudgetsSet));
            account
        };
        let spent = |account: &Account| {
            let standings = account.standings(part.as_ref(), now());
            standings[0].spent.micro()
        };
        // An overrun: what another hold reserves in the budget is not left, either.
        let mut overran = budgeted(20);
        run(&mut overran, of_model("other", 5, None)).expect("it fits");
        run(&mut overran, of_model("h", 5, None)).expect("it fits");
        assert_eq!(run(&mut overran, settling("h", 40)), settled((15, 25)));
        assert_eq!(spent(&overran), 15);
        // A late settlement.
        let mut late = budgeted(20);
        run(&mut late, of_model("h", 15, None)).expect("it fits");
        run(&mut late, checkpoint("h", 10)).expect("it is open");
        run(&mut late, expire("h")).expect("it is open");
        run(&mut late, of_model("other", 6, None)).expect("it fits");
        assert_eq!(run(&mut late, settling("h", 40)), settled((14, 26)));
        assert_eq!(spent(&late), 14);
        // A request of a swarm, whose parent has more.
        let mut child = budgeted(20);
        run(&mut child, opening("parent", 20, None)).expect("it fits");
        run(&mut child, of_model("h", 5, Some("parent"))).expect("it fits");
        assert_eq!(run(&mut child, settling("h", 40)), settled((20, 20)));
        assert_eq!(spent(&child), 20);
        check(&child);
    }
}

#[test]
fn a_hold_ends_once_and_a_repeat_returns_the_first_outcome() {
    let mut account = account(10, 5);
    for _ in 0..2 {
        assert_eq!(
            run(&mut account, opening("h", 12, None)),
            Ok(OperationEffect::Opened)
        );
        assert_eq!(
            run(&mut account, opening("void", 1, None)),
            Ok(OperationEffect::Opened)
        );
        assert_eq!(pools(&account)[2..], [10, 3]);
    }
    assert_eq!(
        run(&mut account, opening("h", 11, None)),
        Err(LedgerRefusal::Conflict)
    );
    for _ in 0..3 {
        assert_eq!(run(&mut account, settling("h", 11)), settled((11, 0)));
        assert_eq!(
            run(&mut account, release("void")),
            Ok(OperationEffect::Released)
        );
    }
    let ended = |state| Err(LedgerRefusal::Ended(state));
    assert_eq!(
        run(&mut account, settling("h", 10)),
        Err(LedgerRefusal::Conflict)
    );
    assert_eq!(run(&mut account, release("h")), ended(HoldState::Settled));
    assert_eq!(run(&mut account, expire("h")), ended(HoldState::Settled));
    assert_eq!(
        run(&mut account, checkpoint("h", 1)),
        ended(HoldState::Settled)
    );
    assert_eq!(
        run(&mut account, settling("void", 1)),
        ended(HoldState::Released)
    );
    assert_eq!(
        run(&mut account, opening("h", 12, None)),
        Ok(OperationEffect::Opened)
    );
    assert_eq!(
        run(&mut account, settling("never", 1)),
        Err(LedgerRefusal::UnknownHold)
    );
    assert_eq!(pools(&account), [0, 4, 0, 0]);
    let kinds: Vec<_> = account.journal.entries.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [EntryKind::Settlement, EntryKind::Release]);
    assert_eq!(account.holds.len(), 0);
}

#[test]
fn an_expired_hold_is_settled_at_its_furthest_checkpoint() {
    let mut account = account(10, 5);
    assert_eq!(
        run(&mut account, opening("h", 8, None)),
        Ok(OperationEffect::Opened)
    );
    for credits in [3, 6, 4] {
        assert_eq!(
            run(&mut account, checkpoint("h", credits)),
            Ok(OperationEffect::Checkpointed)
        );
    }
    let expired = Ok(OperationEffect::Expired {
        charged: Credits::from_micro(6),
        overrun: Credits::from_micro(0),
    });
    assert_eq!(run(&mut account, expire("h")), expired);
    assert_eq!(run(&mut account, expire("h")), expired);
    assert_eq!(pools(&account), [4, 5, 0, 0]);
    let usage = account.journal.entries[0].usage.as_ref();
    assert_eq!(
        usage.map(|usage| (usage.requests, usage.counts.tokens_input)),
        Some((1, 6))
    );
}

#[test]
fn a_settlement_after_an_expiry_posts_the_difference() {
    // A hold of 8 on 10 + 5 that expired at 6.
    for (used, outcome, balance, tokens) in [
        (6, (6, 0), [4, 5], 0),
        (8, (8, 0), [2, 5], 2),
        (13, (13, 0), [0, 2], 7),
        (20, (15, 5), [0, 0], 14),
        (2, (2, 0), [8, 5], -4),
        (0, (0, 0), [10, 5], -6),
    ] {
        let mut account = account(10, 5);
        run(&mut account, opening("h", 8, None)).ok();
        run(&mut account, checkpoint("h", 6)).ok();
        run(&mut account, expire("h")).ok();
        for _ in 0..2 {
            assert_eq!(
                run(&mut account, settling("h", used)),
                settled(outcome),
                "{used}"
            );
        }
        assert_eq!(pools(&account), [balance[0], balance[1], 0, 0], "{used}");
        check_sum(&account, 10, 5);
        let late = &account.journal.entries[1];
        let reported = late
            .usage
            .as_ref()
            .map(|usage| (usage.requests, usage.counts.tokens_input));
        assert_eq!(
            (late.kind, reported),
            (EntryKind::LateSettlement, Some((0, tokens)))
        );
    }
}

#[test]
fn a_late_release_gives_everything_back_top_up_first() {
    let mut account = account(3, 5);
    run(&mut account, opening("h", 7, None)).ok();
    run(&mut account, checkpoint("h", 10)).ok();
    let expired = run(&mut account, expire("h"));
    assert_eq!(
        expired,
        Ok(OperationEffect::Expired {
            charged: Credits::from_micro(8),
            overrun: Credits::from_micro(2)
        })
    );
    assert_eq!(
        run(&mut account, release("h")),
        Ok(OperationEffect::Released)
    );
    assert_eq!(
        run(&mut account, release("h")),
        Ok(OperationEffect::Released)
    );
    assert_eq!(pools(&account), [3, 5, 0, 0]);
    check_sum(&account, 3, 5);
}

#[test]
fn what_a_request_costs_that_nobody_pays_for_is_reported_without_a_request() {
    let releasing = |hold: &str, cost: i64| Action::Release {
        hold: id(hold),
        cost: Some(Box::new(usage(cost))),
    };
    let mut account = account(9, 0);
    run(&mut account, opening("h", 7, None)).ok();
    assert_eq!(
        run(&mut account, releasing("h", 4)),
        Ok(OperationEffect::Released)
    );
    assert_eq!(
        run(&mut account, releasing("h", 4)),
        Ok(OperationEffect::Released)
    );
    assert_eq!(pools(&account), [9, 0, 0, 0]);
    let [entry] = &account.journal.entries[..] else {
        panic!("one entry: {:?}", account.journal.entries);
    };
    let reported = entry.usage.as_ref().expect("its cost");
    assert_eq!(
        (reported.requests, reported.counts),
        (0, usage(4).counts),
        "{reported:?}"
    );

    // The sums are equal after an expiry at a checkpoint and without one.
    for (hold, noted) in [("noted", Some(3)), ("unnoted", None)] {
        run(&mut account, opening(hold, 7, None)).ok();
        if let Some(noted) = noted {
            run(&mut account, checkpoint(hold, noted)).ok();
        }
        run(&mut account, expire(hold)).ok();
        assert_eq!(
            run(&mut account, releasing(hold, 4)),
            Ok(OperationEffect::Released)
        );
        let is_its_own = |entry: &&LedgerEntry| {
            let of = entry.hold.as_ref();
            of.is_some_and(|open| open.hold == id(hold))
        };
        let entries = account.journal.entries.iter().filter(is_its_own);
        let (mut requests, mut counts) = (0, UsageCounts::default());
        for usage in entries.filter_map(|entry| entry.usage.as_ref()) {
            requests += usage.requests;
            counts = counts.plus(usage.counts);
        }
        assert_eq!((requests, counts), (0, usage(4).counts), "{hold}");
    }
    assert_eq!(pools(&account), [9, 0, 0, 0]);
}

#[test]
fn a_hold_open_over_a_reset_settles_against_its_own_period() {
    let later = now().plus_days(40);
    let allotment = Plan::Free.monthly_credits().micro();
    // A hold of 8 on 6 + 5: the 6 belong to the first period.
    for (used, outcome, top_up) in [
        (0, (0, 0), 5),
        (4, (4, 0), 5),
        (8, (8, 0), 3),
        (20, (11, 9), 0),
    ] {
        let mut account = account(6, 5);
        run(&mut account, opening("h", 8, None)).ok();
        let first = account.period.start;
        let reset = run_at(&mut account, later, Action::ResetPeriod);
        assert_eq!(reset, Ok(OperationEffect::PeriodReset));
        assert_eq!(pools(&account), [allotment + 6, 5, 6, 2]);
        assert_eq!(account.available().plan.micro(), allotment);
        assert_eq!(
            run_at(&mut account, later, settling("h", used)),
            settled(outcome)
        );
        assert_eq!(pools(&account), [allotment, top_up, 0, 0], "{used}");
        check_sum(&account, 6, 5);
        let of_hold = account
            .journal
            .entries
            .iter()
            .filter(|entry| entry.hold.is_some());
        assert!(of_hold.clone().count() == 1);
        assert!(of_hold.into_iter().all(|entry| entry.period_start == first));
    }
}

#[test]
fn what_a_released_hold_had_of_a_past_period_lapses() {
    let mut account = account(6, 5);
    run(&mut account, opening("h", 8, None)).ok();
    let later = now().plus_days(40);
    run_at(&mut account, later, Action::ResetPeriod).ok();
    assert_eq!(
        run_at(&mut account, later, release("h")),
        Ok(OperationEffect::Released)
    );
    assert_eq!(
        pools(&account),
        [Plan::Free.monthly_credits().micro(), 5, 0, 0]
    );
    check_sum(&account, 6, 5);
}

#[test]
fn opening_a_hold_begins_the_period_that_is_due() {
    let mut fresh = Account::new(AccountId("bob".into()), BORN);
    assert_eq!(
        run(&mut fresh, opening("h", 500_000_000, None)),
        Ok(OperationEffect::Opened)
    );
    assert_eq!(fresh.period, Period::monthly(BORN, now()));
    let later = now().plus_days(100);
    assert_eq!(
        run_at(&mut fresh, later, opening("i", 500_000_000, None)),
        Ok(OperationEffect::Opened)
    );
    assert_eq!(fresh.period, Period::monthly(BORN, later));
    // A slow clock takes nothing back.
    assert_eq!(
        run(&mut fresh, Action::ResetPeriod),
        Ok(OperationEffect::PeriodReset)
    );
    assert_eq!(fresh.period, Period::monthly(BORN, later));
}

#[test]
fn a_grant_sets_the_plan_credits_once() {
    let mut account = account(7, 5);
    run(&mut account, opening("h", 3, None)).ok();
    for _ in 0..3 {
        let granted = Ok(OperationEffect::Granted {
            credits: Credits::from_micro(100),
        });
        assert_eq!(run(&mut account, granting("sub:1", 100)), granted);
        assert_eq!(pools(&account), [103, 5, 3, 0]);
    }
    assert_eq!(account.plan, Plan::Pro);
    assert_eq!(
        run(&mut account, granting("sub:1", 200)),
        Err(LedgerRefusal::Conflict)
    );
    check_sum(&account, 7, 5);
    let over = now().plus_days(31);
    assert_eq!(
        run_at(&mut account, over, granting("sub:2", 1)),
        Err(LedgerRefusal::Outdated)
    );
    // Three days of grace, then the free plan for the rest of its month.
    let end = account.period.end;
    run_at(
        &mut account,
        Millis(end.plus_days(3).0 - 1),
        Action::ResetPeriod,
    )
    .ok();
    assert_eq!(account.plan, Plan::Pro);
    run_at(&mut account, end.plus_days(3), Action::ResetPeriod).ok();
    assert_eq!(
        (account.plan, account.period.contains(end.plus_days(3))),
        (Plan::Free, true)
    );
    assert!(account.period.start >= end);
}

#[test]
fn a_grant_of_an_older_period_than_the_paid_one_is_refused() {
    let grant = |id: &str, plan, start: i64| {
        let start = Millis(now().0 + start);
        Action::Grant(Grant {
            id: OperationId(id.into()),
            plan,
            period: Period {
                start,
                end: start.plus_days(30),
            },
            credits: Credits::from_micro(100),
        })
    };
    let granted = Ok(OperationEffect::Granted {
        credits: Credits::from_micro(100),
    });
    let mut account = account(0, 0);
    // No payment covered the free plan's period, at any start.
    assert_eq!(run(&mut account, grant("old", Plan::Guru, -9)), granted);
    assert_eq!(run(&mut account, grant("new", Plan::Pro, 0)), granted);
    let before = pools(&account);
    let late = run(&mut account, grant("late", Plan::Guru, -1));
    assert_eq!(late, Err(LedgerRefusal::OlderPeriod));
    assert_eq!((account.plan, pools(&account)), (Plan::Pro, before));
    // A repeat returns the first outcome; a lower plan waits for the next period.
    assert_eq!(run(&mut account, grant("old", Plan::Guru, -9)), granted);
    let lower = run(&mut account, grant("same", Plan::Guru, 0));
    assert_eq!(lower, Err(LedgerRefusal::Granted));
    assert_eq!((account.plan, pools(&account)), (Plan::Pro, before));
}

#[test]
fn a_higher_plan_is_the_current_periods_and_its_credits_are_those_that_were_paid_for() {
    let grant = |id: &str, plan: Plan, days| {
        Action::Grant(Grant {
            id: OperationId(id.into()),
            plan,
            period: Period {
                start: now(),
                end: now().plus_days(days),
            },
            credits: plan.monthly_credits(),
        })
    };
    let granted = |credits| {
        Ok(OperationEffect::Granted {
            credits: Credits::whole(credits),
        })
    };
    let mut account = account(0, 0);
    assert_eq!(
        run(&mut account, grant("1", Plan::Guru, 30)),
        granted(10_000)
    );
    let number = account.period_number;
    let spent = Credits::whole(4_000);
    let opened = run(&mut account, opening("h", spent.micro(), None));
    assert_eq!(opened, Ok(OperationEffect::Opened));
    run(&mut account, settling("h", spent.micro())).expect("done");
    assert_eq!(run(&mut account, grant("2", Plan::Pro, 30)), granted(0));
    assert_eq!(account.balance.plan, Credits::whole(6_000));
    assert_eq!((account.plan, account.period_number), (Plan::Pro, number));
    let lower = run(&mut account, grant("3", Plan::Guru, 30));
    assert_eq!(lower, Err(LedgerRefusal::Granted));
    // The last event decides the end. It adds no credits.
    assert_eq!(run(&mut account, grant("4", Plan::Pro, 31)), granted(0));
    assert_eq!(account.period.end, now().plus_days(31));

    let upgrade = |id: &str, within| {
        Action::TopUp(TopUp {
            id: OperationId(id.into()),
            credits: Credits::whole(100),
            within: Some(within),
        })
    };
    let topped_up = Ok(OperationEffect::ToppedUp {
        credits: Credits::whole(100),
    });
    let both = |account: &Account| {
        [account.balance.plan, account.balance.top_up].map(|credits| credits.micro() / 1_000_000)
    };
    let (within, end) = (now().plus_days(10), now().plus_days(31));
    let last = Millis(end.0 - 1);
    assert_eq!(run_at(&mut account, last, upgrade("5", within)), topped_up);
    assert_eq!(both(&account), [6_100, 0]);
    // A payment for another period, or one that arrives after the period, buys credits that do not expire.
    assert_eq!(run_at(&mut account, last, upgrade("6", end)), topped_up);
    assert_eq!(both(&account), [6_100, 100]);
    assert_eq!(run_at(&mut account, end, upgrade("7", within)), topped_up);
    assert_eq!(both(&account), [6_100, 200]);
    // A repeat returns the first outcome.
    assert_eq!(run_at(&mut account, end, upgrade("5", within)), topped_up);
    assert_eq!(both(&account), [6_100, 200]);
}

#[test]
fn a_plan_that_is_not_renewed_ends_with_its_period() {
    let paid = |account: &mut Account| {
        let grant = Grant {
            id: OperationId("1".into()),
            plan: Plan::Guru,
            period: Period {
                start: now(),
                end: now().plus_days(30),
            },
            credits: Plan::Guru.monthly_credits(),
        };
        run(account, Action::Grant(grant)).expect("done");
    };
    let later = |account: &mut Account, days, action| {
        let operation = Operation {
            account: account.id.clone(),
            at: now().plus_days(days),
            action,
        };
        apply(&operation, account)
    };
    for (renews, free_on) in [(vec![], 33), (vec![false], 30), (vec![false, true], 33)] {
        let mut account = account(0, 0);
        paid(&mut account);
        for renews in renews {
            let noted = run(&mut account, Action::Renewal { renews });
            assert_eq!(noted, Ok(OperationEffect::RenewalNoted));
        }
        later(&mut account, free_on - 1, Action::ResetPeriod).expect("done");
        assert_eq!(account.plan, Plan::Guru, "on day {}", free_on - 1);
        later(&mut account, free_on, Action::ResetPeriod).expect("done");
        assert_eq!(account.plan, Plan::Free, "on day {free_on}");
        assert_eq!(account.cancelled_at, None);
    }
    // After the end of the period, a cancellation takes effect immediately.
    let mut account = account(0, 0);
    paid(&mut account);
    later(&mut account, 31, Action::Renewal { renews: false }).expect("done");
    assert_eq!(account.plan, Plan::Free);
}

#[test]
fn refunds_of_spent_credits_become_owed() {
    let mut account = account(0, 30);
    let refund = refund("refund:1", Pool::TopUp, 100);
    for _ in 0..2 {
        let taken = Credits::from_micro(30);
        let refunded = Ok(OperationEffect::Refunded { credits: taken });
        assert_eq!(run(&mut account, refund.clone()), refunded);
        assert_eq!(account.owed, Credits::from_micro(70));
        assert_eq!(pools(&account), [0, 0, 0, 0]);
    }
    run(&mut account, top_up("a", 50)).expect("done");
    assert_eq!((account.owed.micro(), pools(&account)), (20, [0, 0, 0, 0]));
    run(&mut account, top_up("b", 50)).expect("done");
    assert_eq!((account.owed.micro(), pools(&account)), (0, [0, 30, 0, 0]));
    let owed: i64 = account
        .journal
        .entries
        .iter()
        .map(|entry| entry.owed.micro())
        .sum();
    assert_eq!(owed, 0);
}

fn refund(refund_id: &str, pool: Pool, credits: i64) -> Action {
    Action::Refund(Refund {
        id: OperationId(refund_id.into()),
        pool,
        credits: Credits::from_micro(credits),
    })
}

fn top_up(top_up_id: &str, credits: i64) -> Action {
    Action::TopUp(TopUp {
        id: OperationId(top_up_id.into()),
        credits: Credits::from_micro(credits),
        within: None,
    })
}

#[test]
fn freed_credits_of_holds_pay_owed_credits_first() {
    for end in [release("a"), settling("a", 0), expire("a")] {
        let mut account = account(0, 100);
        run(&mut account, opening("a", 60, None)).expect("enough");
        run(&mut account, opening("b", 39, None)).expect("enough");
        run(&mut account, refund("refund:1", Pool::TopUp, 100)).expect("taken or owed");
        assert_eq!(
            (account.owed.micro(), pools(&account)),
            (99, [0, 99, 0, 99])
        );
        run(&mut account, end).expect("ends");
        assert_eq!(
            (account.owed.micro(), pools(&account)),
            (39, [0, 39, 0, 39])
        );
        let refused = run(&mut account, opening("c", 1, None));
        let short = LedgerRefusal::Insufficient {
            required: Credits::from_micro(1),
            available: Credits::ZERO,
        };
        assert_eq!(refused, Err(short));
        assert_eq!(run(&mut account, settling("b", 30)), settled((30, 0)));
        assert_eq!((account.owed.micro(), pools(&account)), (30, [0, 0, 0, 0]));
        check_sum(&account, 0, 100);
    }
}

#[test]
fn refunds_take_credits_of_the_other_pool_too() {
    let mut account = account(50, 30);
    run(&mut account, refund("refund:1", Pool::TopUp, 60)).expect("taken or owed");
    assert_eq!((account.owed.micro(), pools(&account)), (0, [20, 0, 0, 0]));
    check_sum(&account, 50, 30);
}

#[test]
fn swarms_spend_no_credits_of_refunded_payments() {
    let mut account = account(0, 50);
    run(&mut account, opening("swarm", 50, None)).expect("enough");
    run(&mut account, opening("step", 10, Some("swarm"))).expect("enough");
    run(&mut account, refund("refund:1", Pool::TopUp, 50)).expect("taken or owed");
    let short = LedgerRefusal::Insufficient {
        required: Credits::from_micro(10),
        available: Credits::ZERO,
    };
    let next = run(&mut account, opening("next", 10, Some("swarm")));
    assert_eq!(next, Err(short));
    assert_eq!(run(&mut account, settling("step", 10)), settled((10, 0)));
    run(&mut account, release("swarm")).expect("ends");
    assert_eq!((account.owed.micro(), pools(&account)), (10, [0, 0, 0, 0]));
}

#[test]
fn free_credits_of_an_earlier_release_pay_owed_ones_at_the_next_operation() {
    let mut account = account(20, 80);
    account.owed = Credits::from_micro(90);
    assert_eq!(account.available().total().micro(), 10, "for readers");
    run(&mut account, Action::ResetPeriod).expect("done");
    assert_eq!((account.owed.micro(), pools(&account)), (0, [0, 10, 0, 0]));
}

/// A step of an account's history. `chosen` selects a known hold, and `amount` is in micro-credits.
#[derive(Debug, Clone, Copy)]
enum Step {
    Buy { amount: i64 },
    TakeBack { pool: Pool, amount: i64 },
    Open { amount: i64 },
    OpenChild { chosen: usize, amount: i64 },
    Checkpoint { chosen: usize, amount: i64 },
    Settle { chosen: usize, amount: i64 },
    Release { chosen: usize },
    Expire { chosen: usize },
    NextPeriod,
}

fn any_step() -> impl Strategy<Value = Step> {
    let (amount, chosen) = (0..400_i64, any::<usize>());
    let pool = prop_oneof![Just(Pool::Plan), Just(Pool::TopUp)];
    prop_oneof![
        3 => amount.clone().prop_map(|amount| Step::Buy { amount }),
        3 => (pool, amount.clone()).prop_map(|(pool, amount)| Step::TakeBack { pool, amount }),
        6 => amount.clone().prop_map(|amount| Step::Open { amount }),
        3 => (chosen, amount.clone()).prop_map(|(chosen, amount)| Step::OpenChild { chosen, amount }),
        2 => (chosen, amount.clone()).prop_map(|(chosen, amount)| Step::Checkpoint { chosen, amount }),
        5 => (chosen, amount).prop_map(|(chosen, amount)| Step::Settle { chosen, amount }),
        3 => chosen.prop_map(|chosen| Step::Release { chosen }),
        3 => chosen.prop_map(|chosen| Step::Expire { chosen }),
        1 => Just(Step::NextPeriod),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Available credits never exceed what was paid, less what was spent, held, lapsed and given back.
    #[test]
    fn credits_that_went_back_cannot_be_spent(steps in prop::collection::vec(any_step(), 1..120)) {
        let mut account = account(0, 0);
        let mut at = now();
        let (mut went_back, mut holds) = (0, Vec::<String>::new());
        // The last known charge of each hold.
        let mut spent = BTreeMap::<String, i64>::new();
        for (number, step) in steps.into_iter().enumerate() {
            let name = number.to_string();
            let hold = |chosen: usize| match holds.is_empty() {
                true => "none".to_owned(),
                false => holds[chosen % holds.len()].clone(),
            };
            let (action, ends) = match step {
                Step::Buy { amount } => (top_up(&name, amount), None),
                Step::TakeBack { pool, amount } => (refund(&name, pool, amount), None),
                Step::Open { amount } => (opening(&name, amount, None), None),
                Step::OpenChild { chosen, amount } => {
                    (opening(&name, amount, Some(&hold(chosen))), None)
                }
                Step::Checkpoint { chosen, amount } => (checkpoint(&hold(chosen), amount), None),
                Step::Settle { chosen, amount } => {
                    (settling(&hold(chosen), amount), Some(hold(chosen)))
                }
                Step::Release { chosen } => (release(&hold(chosen)), Some(hold(chosen))),
                Step::Expire { chosen } => (expire(&hold(chosen)), Some(hold(chosen))),
                Step::NextPeriod => {
                    at = at.plus_days(31);
                    (Action::ResetPeriod, None)
                }
            };
            let outcome = run_at(&mut account, at, action);
            match outcome {
                Ok(OperationEffect::Opened) => holds.push(name),
                Ok(OperationEffect::Settled { charged, .. } | OperationEffect::Expired { charged, .. }) => {
                    spent.insert(ends.expect("a hold"), charged.micro());
                }
                Ok(OperationEffect::Released) => {
                    spent.insert(ends.expect("a hold"), 0);
                }
                Ok(OperationEffect::Refunded { .. }) => {
                    if let Step::TakeBack { amount, .. } = step {
                        went_back += amount;
                    }
                }
                _ => {}
            }
            let came: i64 = account.journal.entries.iter().filter_map(|entry| {
                let counts = matches!(
                    entry.kind, EntryKind::Grant | EntryKind::TopUp | EntryKind::Lapse
                );
                counts.then(|| (entry.plan_delta.micro()) + entry.top_up_delta.micro())
            }).sum();
            let left = came - went_back - spent.values().sum::<i64>() - account.held.total().micro();
            prop_assert_eq!(account.available().total().micro(), left.max(0));
            prop_assert_eq!(account.owed.micro(), (-left).max(0));
        }
    }
}

#[test]
fn an_adjustment_gives_or_takes_all_or_nothing() {
    let mut account = account(10, 5);
    let adjust = |id: &str, way, pool, credits| {
        Action::Adjust(Adjust {
            id: OperationId(id.into()),
            way,
            pool,
            credits: Credits::from_micro(credits),
            reason: "charged twice".into(),
            actor: "ops".into(),
        })
    };
    let give = adjust("a", ChangeDirection::Give, Pool::Plan, 3);
    for _ in 0..2 {
        let credits = Credits::from_micro(3);
        let adjusted = Ok(OperationEffect::Adjusted { credits });
        assert_eq!(run(&mut account, give.clone()), adjusted);
        assert_eq!(pools(&account), [13, 5, 0, 0]);
    }
    let too_many = run(
        &mut account,
        adjust("b", ChangeDirection::Take, Pool::TopUp, 6),
    );
    assert!(matches!(too_many, Err(LedgerRefusal::Insufficient { .. })));
    run(
        &mut account,
        adjust("c", ChangeDirection::Take, Pool::TopUp, 5),
    )
    .expect("done");
    assert_eq!(pools(&account), [13, 0, 0, 0]);
    let other = run(
        &mut account,
        adjust("a", ChangeDirection::Give, Pool::Plan, 4),
    );
    assert_eq!(other, Err(LedgerRefusal::Conflict));
}

#[test]
fn an_account_is_low_since_it_fell_below_its_bound() {
    let mut account = account(10, 5);
    let watch = |below: i64| Action::Watch {
        below: Some(Credits::from_micro(below)),
    };
    run(&mut account, watch(15)).expect("done");
    assert_eq!(account.low_since, None);
    run(&mut account, opening("h", 4, None)).expect("done");
    assert_eq!(account.low_since, None, "what is held may come back");
    run(&mut account, settling("h", 1)).expect("done");
    assert_eq!(account.low_since, Some(now()));
    run(&mut account, watch(14)).expect("done");
    assert_eq!(account.low_since, None);
    run(&mut account, watch(100)).expect("done");
    assert_eq!(account.low_since, Some(now()));
    run(&mut account, Action::Watch { below: None }).expect("done");
    assert_eq!(account.low_since, None);
    let mut new = Account::new(AccountId("bob".into()), BORN);
    run(&mut new, watch(500_000_000)).expect("done");
    assert_eq!(new.low_since, None, "its first period is due");
}

#[test]
fn a_key_ends_with_the_settlement_that_is_paid_in_full() {
    for (credits, ends) in [(10, true), (16, false)] {
        let mut account = account(10, 5);
        let claim = IdempotencyClaim {
            key: "k".into(),
            request_digest: [7; 32],
        };
        let Action::Open { open, boot_id, .. } = opening("h", 10, None) else {
            unreachable!("it opens");
        };
        let request_id = open.request_id.clone();
        let open = Action::Open {
            open,
            boot_id,
            claim: Some(Box::new(claim)),
        };
        run(&mut account, open).expect("done");
        let Action::Settle(mut settle) = settling("h", credits) else {
            unreachable!("it settles");
        };
        settle.end = Some(Box::new(EndKey {
            key: "k".into(),
            request_id,
            answer: Some(b"sealed".to_vec()),
        }));
        let first = run(&mut account, Action::Settle(settle.clone())).expect("settled");
        let key = &account.keys["k"];
        assert_eq!(key.completed_at.is_some(), ends, "{credits}");
        assert_eq!(key.answer.is_some(), ends, "{credits}");
        let again = run(&mut account, Action::Settle(settle)).expect("settled");
        assert_eq!(again, first);
    }
}

#[test]
fn top_ups_and_refunds_count_once() {
    let mut account = account(1, 5);
    let top_up = |credits| {
        let id = OperationId("pay:1".into());
        let credits = Credits::from_micro(credits);
        Action::TopUp(TopUp {
            id,
            credits,
            within: None,
        })
    };
    let refund = |credits| {
        let id = OperationId("refund:1".into());
        let credits = Credits::from_micro(credits);
        let pool = Pool::TopUp;
        Action::Refund(Refund { id, pool, credits })
    };
    run(&mut account, opening("h", 4, None)).ok();
    for _ in 0..3 {
        let added = Ok(OperationEffect::ToppedUp {
            credits: Credits::from_micro(10),
        });
        assert_eq!(run(&mut account, top_up(10)), added);
        assert_eq!(run(&mut account, top_up(11)), Err(LedgerRefusal::Conflict));
    }
    for _ in 0..3 {
        // 15 less the held credits.
        let taken = Ok(OperationEffect::Refunded {
            credits: Credits::from_micro(12),
        });
        assert_eq!(run(&mut account, refund(20)), taken);
    }
    assert_eq!(pools(&account), [1, 3, 1, 3]);
    check_sum(&account, 1, 5);
}

#[test]
fn a_child_draws_on_its_parent_and_returns_what_it_does_not_use() {
    let mut account = account(10, 10);
    run(&mut account, opening("parent", 12, None)).ok();
    assert_eq!(
        run(&mut account, opening("a", 8, Some("parent"))),
        Ok(OperationEffect::Opened)
    );
    assert_eq!(pools(&account), [10, 10, 10, 2]);
    let short = LedgerRefusal::Insufficient {
        required: Credits::from_micro(5),
        available: Credits::from_micro(4),
    };
    assert_eq!(
        run(&mut account, opening("b", 5, Some("parent"))),
        Err(short)
    );
    assert_eq!(run(&mut account, settling("a", 3)), settled((3, 0)));
    assert_eq!(
        account.holds[&id("parent")].reserved.total(),
        Credits::from_micro(9)
    );
    assert_eq!(
        run(&mut account, opening("b", 5, Some("parent"))),
        Ok(OperationEffect::Opened)
    );
    // Beyond its own 5: the parent's 4, the 8 available ones, and 3 that the account lacks.
    assert_eq!(run(&mut account, settling("b", 20)), settled((17, 3)));
    assert_eq!(pools(&account), [0, 0, 0, 0]);
    assert_eq!(
        run(&mut account, release("parent")),
        Ok(OperationEffect::Released)
    );
    check_sum(&account, 10, 10);
}

#[test]
fn a_child_outlives_its_parent() {
    let mut account = account(10, 0);
    run(&mut account, opening("parent", 10, None)).ok();
    run(&mut account, opening("child", 6, Some("parent"))).ok();
    assert_eq!(
        run(&mut account, release("parent")),
        Ok(OperationEffect::Released)
    );
    assert_eq!(pools(&account), [10, 0, 6, 0]);
    let refused = run(&mut account, opening("late", 1, Some("parent")));
    assert_eq!(refused, Err(LedgerRefusal::Ended(HoldState::Released)));
    assert_eq!(run(&mut account, settling("child", 2)), settled((2, 0)));
    assert_eq!(pools(&account), [8, 0, 0, 0]);
}

#[test]
fn amounts_out_of_range_change_nothing() {
    let mut account = account(10, 0);
    run(&mut account, opening("h", 1, None)).ok();
    for credits in [-1, i64::MIN, Credits::MAX.micro() + 1, i64::MAX] {
        let refused = Err(LedgerRefusal::OutOfRange);
        assert_eq!(run(&mut account, opening("x", credits, None)), refused);
        assert_eq!(run(&mut account, granting("x", credits)), refused);
        let settle = Action::Settle(Settle {
            end: None,
            hold: id("h"),
            credits: Credits::from_micro(credits),
            usage: RequestUsage::default(),
        });
        assert_eq!(run(&mut account, settle), refused);
    }
    assert_eq!(pools(&account), [10, 0, 1, 0]);
}
