//! Tests of budgets' counts and rejections.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

fn at(moment: &str) -> Millis {
    Millis::parse(moment).unwrap()
}

fn setting(key_id: Option<&str>, budgets: &[(u32, BudgetWindow)]) -> SetBudgets {
    let budget = |&(credits, window): &(u32, BudgetWindow)| Budget {
        credits: Credits::whole(credits),
        window,
    };
    SetBudgets {
        part: key_id.map(key),
        until: None,
        budgets: budgets.iter().map(budget).collect(),
        ended: Vec::new(),
    }
}

fn key(id: &str) -> BudgetPart {
    BudgetPart::Key(id.to_owned())
}

fn micro(credits: u32) -> i64 {
    Credits::whole(credits).micro()
}

#[test]
fn windows_are_those_of_the_calendar() {
    for (window, moment, start, end) in [
        (
            BudgetWindow::Hour,
            "2026-03-04T05:59:59Z",
            "2026-03-04T05:00:00Z",
            "2026-03-04T06:00:00Z",
        ),
        (
            BudgetWindow::Day,
            "2026-03-04T05:59:59Z",
            "2026-03-04T00:00:00Z",
            "2026-03-05T00:00:00Z",
        ),
        // A Wednesday; a Monday; a Sunday.
        (
            BudgetWindow::Week,
            "2026-03-04T05:59:59Z",
            "2026-03-02T00:00:00Z",
            "2026-03-09T00:00:00Z",
        ),
        (
            BudgetWindow::Week,
            "2026-03-02T00:00:00Z",
            "2026-03-02T00:00:00Z",
            "2026-03-09T00:00:00Z",
        ),
        (
            BudgetWindow::Week,
            "2026-03-08T23:59:59Z",
            "2026-03-02T00:00:00Z",
            "2026-03-09T00:00:00Z",
        ),
        (
            BudgetWindow::Month,
            "2028-02-29T12:00:00Z",
            "2028-02-01T00:00:00Z",
            "2028-03-01T00:00:00Z",
        ),
        (
            BudgetWindow::Month,
            "2026-12-31T23:59:59Z",
            "2026-12-01T00:00:00Z",
            "2027-01-01T00:00:00Z",
        ),
    ] {
        assert_eq!(window.start(at(moment)), at(start), "{window:?} {moment}");
        assert_eq!(window.end(at(start)), Some(at(end)), "{window:?} {moment}");
    }
    assert_eq!(
        BudgetWindow::Total.end(BudgetWindow::Total.start(at("2026-03-04T05:00:00Z"))),
        None
    );
}

#[test]
fn what_is_held_and_what_is_spent_counts_until_the_window_ends() {
    let now = at("2026-03-04T05:30:00Z");
    let mut budgets = Budgets::default();
    assert!(budgets.set(
        &setting(
            Some("k"),
            &[(10, BudgetWindow::Hour), (15, BudgetWindow::Total)]
        ),
        0,
        now
    ));
    let check = |budgets: &Budgets, credits, now| {
        budgets.check(&[key("k")], Credits::whole(credits), Credits::ZERO, now)
    };
    assert_eq!(check(&budgets, 10, now), Ok(()));
    budgets.change_held(&[key("k")], micro(4));
    budgets.spend(&[key("k")], micro(3), now);
    assert_eq!(check(&budgets, 3, now), Ok(()));
    let exceeded = check(&budgets, 4, now).unwrap_err();
    assert_eq!(exceeded.part, Some(key("k")));
    assert_eq!(exceeded.standing.left, Credits::whole(3));
    assert_eq!(
        exceeded.standing.resets_at,
        Some(at("2026-03-04T06:00:00Z"))
    );
    // The hour is over, but its hold is not; all spent credits stay spent.
    let later = at("2026-03-04T06:00:00Z");
    assert_eq!(check(&budgets, 6, later), Ok(()));
    assert_eq!(
        check(&budgets, 7, later)
            .unwrap_err()
            .standing
            .budget
            .window,
        BudgetWindow::Hour
    );
    // If two budgets reject, the error has the one that rejects for longer.
    let exceeded = check(&budgets, 9, later).unwrap_err();
    assert_eq!(exceeded.standing.budget.window, BudgetWindow::Total);
    // A charge from the previous hour arrives too late for this one.
    budgets.spend(&[key("k")], micro(1), later);
    budgets.spend(&[key("k")], micro(2), now);
    let standings = budgets.standings(Some(&key("k")), Credits::ZERO, later);
    assert_eq!(standings[0].spent, Credits::whole(1));
    assert_eq!(standings[1].spent, Credits::whole(6));
}

#[test]
fn an_accounts_budget_counts_all_and_a_keys_its_own() {
    let now = at("2026-03-04T05:30:00Z");
    let mut budgets = Budgets::default();
    assert!(budgets.set(&setting(None, &[(10, BudgetWindow::Day)]), 7, now));
    assert!(budgets.set(&setting(Some("k"), &[(5, BudgetWindow::Day)]), 9, now));
    budgets.spend(&[key("other")], micro(2), now);
    budgets.spend(&[key("k")], micro(1), now);
    budgets.spend(&[], micro(1), now);
    let spent = |budgets: &Budgets, part: Option<&BudgetPart>| {
        budgets.standings(part, Credits::ZERO, now)[0].spent
    };
    assert_eq!(spent(&budgets, None), Credits::whole(4));
    assert_eq!(spent(&budgets, Some(&key("k"))), Credits::whole(1));
    let allows = |id: Option<&str>, credits, held| {
        let (credits, held) = (Credits::whole(credits), Credits::whole(held));
        let parts: Vec<_> = id.map(key).into_iter().collect();
        budgets.check(&parts, credits, held, now).is_ok()
    };
    assert!(allows(Some("k"), 4, 0) && !allows(Some("k"), 5, 0));
    assert!(
        allows(Some("k"), 3, 3) && !allows(Some("k"), 4, 3),
        "what the account holds"
    );
    assert!(allows(None, 6, 0) && !allows(None, 7, 0));
}

#[test]
fn another_limit_for_a_window_goes_on_counting_and_what_ended_is_forgotten() {
    let now = at("2026-03-04T05:30:00Z");
    let mut budgets = Budgets::default();
    assert!(budgets.set(&setting(Some("k"), &[(10, BudgetWindow::Day)]), 0, now));
    budgets.spend(&[key("k")], micro(4), now);
    assert!(budgets.set(
        &setting(
            Some("k"),
            &[(6, BudgetWindow::Day), (9, BudgetWindow::Hour)]
        ),
        3,
        now
    ));
    let left: Vec<_> = budgets.standings(Some(&key("k")), Credits::ZERO, now);
    let left: Vec<_> = left.iter().map(|standing| standing.left).collect();
    assert_eq!(left, [Credits::whole(2), Credits::whole(9)]);

    // A key with held credits is remembered.
    budgets.change_held(&[key("k")], micro(1));
    let mut other = setting(Some("l"), &[(1, BudgetWindow::Total)]);
    other.ended = vec![key("k")];
    assert!(budgets.set(&other, 3, now));
    assert!(budgets.counted(&[key("k")]).is_empty());
    assert_eq!(budgets.parts().collect::<Vec<_>>(), [&key("k"), &key("l")]);
    budgets.change_held(&[key("k")], -micro(1));
    other.until = Some(now);
    assert!(budgets.set(&other, 3, now));
    assert!(budgets.set(&setting(None, &[]), 3, now));
    assert!(budgets.is_empty());
}

#[test]
fn two_budgets_for_a_window_are_refused_and_so_are_too_many_parts() {
    let now = at("2026-03-04T05:30:00Z");
    let mut budgets = Budgets::default();
    assert!(!budgets.set(
        &setting(None, &[(1, BudgetWindow::Day), (2, BudgetWindow::Day)]),
        0,
        now
    ));
    for number in 0..MOST_PARTS {
        let id = format!("k{number}");
        assert!(budgets.set(&setting(Some(&id), &[(1, BudgetWindow::Day)]), 0, now));
    }
    assert!(!budgets.set(
        &setting(Some("one more"), &[(1, BudgetWindow::Day)]),
        0,
        now
    ));
}

#[test]
fn what_rows_have_stored_stays_readable() {
    let now = at("2026-03-04T05:30:00Z");
    let mut budgets = Budgets::default();
    assert!(budgets.set(&setting(None, &[(1, BudgetWindow::Total)]), 5, now));
    assert!(budgets.set(&setting(Some("k"), &[(2, BudgetWindow::Day)]), 6, now));
    budgets.change_held(&[key("k")], 3);
    let stored = r#"[{"held":0,"counters":[{"window":"total","limit":1000000,"since":5,"start":0,"spent":0}]},{"key_id":"k","held":3,"counters":[{"window":"day","limit":2000000,"since":6,"start":1772582400000,"spent":0}]}]"#;
    assert_eq!(serde_json::to_string(&budgets).unwrap(), stored);
    assert_eq!(serde_json::from_str::<Budgets>(stored).unwrap(), budgets);
}

#[test]
fn parts_survive_their_stored_form() {
    let parts = [
        key("key_0123456789abcdef"),
        BudgetPart::Project("prj_1".to_owned()),
        BudgetPart::Member("user:with:colons".to_owned()),
        BudgetPart::Model("vendor/model:free".to_owned()),
    ];
    let stored = BudgetPart::join(&parts).unwrap();
    assert_eq!(BudgetPart::split(Some(&stored)), parts);
    assert_eq!(BudgetPart::join(&[]), None);
    assert_eq!(BudgetPart::split(None), []);
}

#[test]
fn a_charge_counts_for_each_of_its_parts() {
    let now = at("2026-03-04T05:30:00Z");
    let (project, member) = (
        BudgetPart::Project("p".to_owned()),
        BudgetPart::Member("m".to_owned()),
    );
    let mut budgets = Budgets::default();
    for (part, credits) in [(&project, 10), (&member, 4)] {
        let set = SetBudgets {
            part: Some(part.clone()),
            ..setting(None, &[(credits, BudgetWindow::Month)])
        };
        assert!(budgets.set(&set, 0, now));
    }
    let both = [key("k"), project.clone(), member.clone()];
    assert_eq!(budgets.counted(&both), [project.clone(), member.clone()]);
    budgets.change_held(&budgets.counted(&both), micro(1));
    budgets.spend(&both, micro(2), now);
    budgets.spend(std::slice::from_ref(&project), micro(5), now);
    let left = |part| budgets.standings(Some(part), Credits::ZERO, now)[0].left;
    assert_eq!(left(&project), Credits::whole(2));
    assert_eq!(left(&member), Credits::whole(1));
    let exceeded = budgets.check(&both, Credits::whole(2), Credits::ZERO, now);
    assert_eq!(exceeded.unwrap_err().part, Some(member));
}

#[test]
fn alerts_are_due_once_for_each_share_and_window() {
    let now = at("2026-03-04T05:30:00Z");
    let mut budgets = Budgets::default();
    assert!(budgets.set(&setting(Some("k"), &[(10, BudgetWindow::Day)]), 0, now));
    let parts = [key("k")];
    let percents = |budgets: &Budgets, at| -> Vec<_> {
        let alerts = budgets.alerts(at).into_iter();
        alerts.map(|alert| alert.percent).collect()
    };
    assert!(!budgets.spend(&parts, micro(7), now));
    assert!(budgets.spend(&parts, micro(1), now));
    assert_eq!(percents(&budgets, now), [80]);
    assert!(!budgets.spend(&parts, micro(1), now), "80 % was noted");
    assert!(budgets.spend(&parts, micro(3), now));
    assert_eq!(percents(&budgets, now), [80, 100]);
    let stored = serde_json::to_string(&budgets).unwrap();
    assert_eq!(serde_json::from_str::<Budgets>(&stored).unwrap(), budgets);

    let tomorrow = at("2026-03-05T05:30:00Z");
    assert_eq!(percents(&budgets, tomorrow), [0_u8; 0]);
    assert!(budgets.spend(&parts, micro(9), tomorrow));
    assert_eq!(percents(&budgets, tomorrow), [80]);
    // A higher limit begins anew.
    assert!(budgets.set(&setting(Some("k"), &[(10, BudgetWindow::Day)]), 0, tomorrow));
    assert_eq!(percents(&budgets, tomorrow), [80]);
    assert!(budgets.set(
        &setting(Some("k"), &[(100, BudgetWindow::Day)]),
        0,
        tomorrow
    ));
    assert_eq!(percents(&budgets, tomorrow), [0_u8; 0]);
}
