//! Simulated canaries. The generator is seeded: a run is the same each time.

use super::*;
use crate::canary::samples::GROUPS;

/// A generator by Sebastiano Vigna (SplitMix64): small, and good enough for a simulation.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Returns a number from 0 to 1.
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn happens(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// Draws from the standard normal distribution, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Draws a skewed value, as latencies are: one in a hundred is ten times the median with a `sigma` of 1.
    fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        median * (sigma * self.normal()).exp()
    }
}

#[derive(Clone, Copy)]
struct Behaviour {
    traps: f64,
    faults: f64,
    errors: f64,
    first_token_us: f64,
    latency_us: f64,
    tokens: f64,
}

const WELL: Behaviour = Behaviour {
    traps: 0.001,
    faults: 0.002,
    errors: 0.02,
    first_token_us: 300_000.0,
    latency_us: 2_000_000.0,
    tokens: 400.0,
};

/// An account's deviation from others: a factor of all its amounts, and of its errors.
#[derive(Clone, Copy)]
struct Habit {
    group: usize,
    factor: f64,
}

fn ask(dice: &mut Dice, samples: &mut Samples, habit: Habit, does: &Behaviour) {
    let Habit { group, factor } = habit;
    let traps = dice.happens(does.traps);
    let is_fault = traps || dice.happens(does.faults);
    let fails = is_fault || dice.happens((does.errors * factor).min(1.0));
    samples.happened(group, Measure::Traps, traps);
    samples.happened(group, Measure::Faults, is_fault);
    samples.happened(group, Measure::Errors, fails);
    if fails {
        return;
    }
    let first_token = dice.lognormal(does.first_token_us * factor, 0.6);
    samples.amounted(group, Measure::FirstToken, first_token);
    let latency = dice.lognormal(does.latency_us * factor, 1.0);
    samples.amounted(group, Measure::Latency, latency);
    let tokens = dice.lognormal(does.tokens * factor, 1.0);
    samples.amounted(group, Measure::Tokens, tokens);
    samples.amounted(group, Measure::Charge, tokens * 12.0);
}

/// Accounts in their groups. With a `sigma`, each has its own habits.
fn accounts(dice: &mut Dice, number: usize, sigma: f64) -> Vec<Habit> {
    let account = |_| Habit {
        group: (dice.next() % GROUPS as u64) as usize,
        factor: dice.lognormal(1.0, sigma),
    };
    (0..number).map(account).collect()
}

/// A trial of this many requests, compared after every hundred; the canary serves three in ten. Returns the
/// finding against the canary, and the number of its requests by then.
fn trial(
    dice: &mut Dice,
    [others, of_canary]: [&[Habit]; 2],
    does: &Behaviour,
    requests: usize,
) -> Option<(Finding, i64)> {
    let (mut active, mut canary) = (Samples::default(), Samples::default());
    for request in 1..=requests {
        let pick = dice.next() as usize;
        match request % 10 < 3 {
            true => ask(dice, &mut canary, of_canary[pick % of_canary.len()], does),
            false => ask(dice, &mut active, others[pick % others.len()], &WELL),
        }
        if request % 100 == 0
            && let Some(found) = worst(&compare(&active, &canary))
        {
            return Some((*found, found.canary.requests));
        }
    }
    None
}

#[test]
fn of_a_thousand_equal_canaries_ten_at_most_are_found_worse() {
    let mut dice = Dice(1);
    let mut alarms = Vec::new();
    for _ in 0..1_000 {
        let others = accounts(&mut dice, 200, 0.0);
        let few = accounts(&mut dice, 40, 0.0);
        alarms.extend(trial(&mut dice, [&others, &few], &WELL, 2_000));
    }
    assert!(alarms.len() <= 10, "{} alarms: {alarms:?}", alarms.len());
}

/// The accounts of a canary are few and unlike the others, which is chance, too.
#[test]
fn nor_are_those_whose_accounts_have_habits_of_their_own() {
    let mut dice = Dice(2);
    for (others, few) in [(300, 30), (100, 8), (30, 8), (12, 6)] {
        let mut alarms = Vec::new();
        for _ in 0..1_000 {
            let others = accounts(&mut dice, others, 0.7);
            let few = accounts(&mut dice, few, 0.7);
            alarms.extend(trial(&mut dice, [&others, &few], &WELL, 1_000));
        }
        let count = alarms.len();
        assert!(count <= 10, "{few} accounts: {count} alarms: {alarms:?}");
    }
}

#[test]
fn what_is_worse_is_found_soon_and_by_its_name() {
    let mut dice = Dice(3);
    let cases = [
        (Measure::Traps, Behaviour { traps: 0.1, ..WELL }),
        (
            Measure::Faults,
            Behaviour {
                faults: 0.1,
                ..WELL
            },
        ),
        (
            Measure::FirstToken,
            Behaviour {
                first_token_us: 1.3 * WELL.first_token_us,
                ..WELL
            },
        ),
        (
            Measure::Latency,
            Behaviour {
                latency_us: 1.6 * WELL.latency_us,
                ..WELL
            },
        ),
        (
            Measure::Tokens,
            Behaviour {
                tokens: 2.0 * WELL.tokens,
                ..WELL
            },
        ),
        (
            Measure::Tokens,
            Behaviour {
                tokens: 0.5 * WELL.tokens,
                ..WELL
            },
        ),
    ];
    for (measure, does) in cases {
        let mut slowest = 0;
        for _ in 0..20 {
            let others = accounts(&mut dice, 200, 0.0);
            let few = accounts(&mut dice, 40, 0.0);
            let found = trial(&mut dice, [&others, &few], &does, 5_000);
            let (finding, after) = found.unwrap_or_else(|| panic!("{measure:?} is not found"));
            // A fault is an error, too, which may be certain a moment earlier.
            let is_it =
                finding.measure == measure || measure.is_share() && finding.measure.is_share();
            assert!(is_it, "{measure:?}: {finding}");
            slowest = slowest.max(after);
        }
    }
}

#[test]
fn two_per_cent_for_certain_are_no_reason() {
    let mut dice = Dice(4);
    let does = Behaviour {
        latency_us: 1.02 * WELL.latency_us,
        first_token_us: 1.02 * WELL.first_token_us,
        ..WELL
    };
    let others = accounts(&mut dice, 200, 0.0);
    let few = accounts(&mut dice, 40, 0.0);
    assert_eq!(trial(&mut dice, [&others, &few], &does, 100_000), None);
}

#[test]
fn without_enough_requests_or_accounts_nothing_is_said() {
    let judged = |requests: usize, groups: usize| {
        let (mut active, mut canary) = (Samples::default(), Samples::default());
        for request in 0..requests {
            active.happened(request % GROUPS, Measure::Faults, false);
            canary.happened(request % groups, Measure::Faults, true);
        }
        let findings = compare(&active, &canary);
        assert!(!is_harmless(&findings));
        worst(&findings).is_some()
    };
    assert!(!judged(99, 6));
    assert!(!judged(10_000, 5));
    assert!(judged(200, 6));
}

/// Errors that clients or their upstream can cause end no canary; but a promotion needs certainty about them.
#[test]
fn errors_keep_a_canary_from_being_promoted_and_do_not_end_it() {
    let mut dice = Dice(5);
    let others = accounts(&mut dice, 200, 0.0);
    let few = accounts(&mut dice, 40, 0.0);
    let does = Behaviour {
        errors: 0.3,
        ..WELL
    };
    assert_eq!(trial(&mut dice, [&others, &few], &does, 20_000), None);
    let (active, canary) = sides(&mut dice, [&others, &few], &does, 20_000, |_, _, _| {});
    assert!(!is_harmless(&compare(&active, &canary)));
    let (active, canary) = sides(&mut dice, [&others, &few], &WELL, 20_000, |_, _, _| {});
    let findings = compare(&active, &canary);
    assert!(is_harmless(&findings), "{findings:?}");
}

/// The samples of this many requests of each side, beside those of an attacker.
fn sides(
    dice: &mut Dice,
    [others, of_canary]: [&[Habit]; 2],
    does: &Behaviour,
    requests: usize,
    attack: impl Fn(&mut Dice, &mut Samples, &mut Samples),
) -> (Samples, Samples) {
    let (mut active, mut canary) = (Samples::default(), Samples::default());
    for _ in 0..requests {
        let pick = dice.next() as usize;
        ask(dice, &mut canary, of_canary[pick % of_canary.len()], does);
        ask(dice, &mut active, others[pick % others.len()], &WELL);
        attack(dice, &mut active, &mut canary);
    }
    (active, canary)
}

/// Puts an attacker's requests into one group: garbage and outliers, all at once.
fn misuse(dice: &mut Dice, side: &mut Samples, is_bad: bool, amount: f64) {
    const GROUP: usize = 3;
    for measure in Measure::ALL {
        match measure.is_share() {
            true => side.happened(GROUP, measure, is_bad),
            false => side.amounted(GROUP, measure, dice.lognormal(amount, 2.0)),
        }
    }
}

/// An attacker's amounts: minimal, maximal and moderate.
const AMOUNTS: [f64; 3] = [1.0, 1e12, 1e6];

#[test]
fn one_account_that_sends_garbage_and_outliers_does_not_end_a_canary() {
    let mut dice = Dice(6);
    for amount in AMOUNTS {
        let mut alarms = Vec::new();
        for _ in 0..1_000 {
            let others = accounts(&mut dice, 200, 0.5);
            let few = accounts(&mut dice, 40, 0.5);
            let (active, canary) =
                sides(&mut dice, [&others, &few], &WELL, 500, |dice, _, canary| {
                    misuse(dice, canary, true, amount);
                });
            alarms.extend(worst(&compare(&active, &canary)).copied());
        }
        let count = alarms.len();
        assert!(count <= 10, "{amount}: {count} alarms: {alarms:?}");
    }
}

#[test]
fn one_account_that_sends_garbage_and_outliers_hides_no_harm() {
    let mut dice = Dice(7);
    let cases = [
        Behaviour { traps: 0.1, ..WELL },
        Behaviour {
            latency_us: 2.5 * WELL.latency_us,
            ..WELL
        },
        Behaviour {
            tokens: 2.5 * WELL.tokens,
            ..WELL
        },
    ];
    for (case, does) in cases.iter().enumerate() {
        for amount in AMOUNTS {
            for (on_active, on_canary) in [(true, false), (false, true), (true, true)] {
                for _ in 0..10 {
                    let others = accounts(&mut dice, 200, 0.3);
                    let few = accounts(&mut dice, 80, 0.3);
                    let attack = |dice: &mut Dice, active: &mut Samples, canary: &mut Samples| {
                        let is_bad = dice.happens(0.5);
                        if on_active {
                            misuse(dice, active, true, amount);
                        }
                        if on_canary {
                            misuse(dice, canary, is_bad, amount);
                        }
                    };
                    let (active, canary) = sides(&mut dice, [&others, &few], does, 4_000, attack);
                    let findings = compare(&active, &canary);
                    let what = format!("case {case}, {amount}, {on_active}, {on_canary}");
                    assert!(worst(&findings).is_some(), "{what}: {findings:?}");
                    assert!(!is_harmless(&findings), "{what}: {findings:?}");
                }
            }
        }
    }
}

#[test]
fn one_account_that_sends_garbage_and_outliers_keeps_no_sound_canary_from_being_promoted() {
    let mut dice = Dice(8);
    for amount in AMOUNTS {
        let others = accounts(&mut dice, 300, 0.3);
        let few = accounts(&mut dice, 150, 0.3);
        let (active, canary) = sides(
            &mut dice,
            [&others, &few],
            &WELL,
            10_000,
            |dice, _, canary| {
                misuse(dice, canary, true, amount);
            },
        );
        let findings = compare(&active, &canary);
        assert!(is_harmless(&findings), "{amount}: {findings:?}");
    }
}

/// At the bound of harm, five false promotions in a hundred would be allowed.
#[test]
fn a_canary_that_does_harm_is_not_promoted() {
    let mut dice = Dice(9);
    let mut promoted = 0;
    for _ in 0..200 {
        let others = accounts(&mut dice, 200, 0.3);
        let few = accounts(&mut dice, 100, 0.3);
        let does = Behaviour {
            faults: WELL.faults + 0.02,
            ..WELL
        };
        let (mut active, mut canary) = (Samples::default(), Samples::default());
        for _ in 0..40 {
            let more = sides(&mut dice, [&others, &few], &does, 100, |_, _, _| {});
            active.add_all(&more.0);
            canary.add_all(&more.1);
            if is_harmless(&compare(&active, &canary)) {
                promoted += 1;
                break;
            }
        }
    }
    assert!(promoted <= 10, "{promoted} of 200");
}

#[test]
fn a_filter_that_refuses_or_changes_less_or_more_is_found() {
    let mut dice = Dice(10);
    for measure in [Measure::Refusals, Measure::Changes, Measure::Stops] {
        for (usual, canary_does, word) in [(0.2, 0.02, "less"), (0.02, 0.2, "more")] {
            let (mut active, mut canary) = (Samples::default(), Samples::default());
            for request in 0..1_000 {
                let group = request % GROUPS;
                active.happened(group, measure, dice.happens(usual));
                canary.happened(group, measure, dice.happens(canary_does));
                for side in [&mut active, &mut canary] {
                    side.happened(group, Measure::Faults, false);
                }
            }
            let findings = compare(&active, &canary);
            let found = worst(&findings).expect("it is found");
            assert_eq!(found.measure, measure);
            assert!(found.to_string().contains(word), "{found}");
        }
    }
}

#[test]
fn a_reason_says_what_by_how_much_and_of_how_many() {
    let (mut active, mut canary) = (Samples::default(), Samples::default());
    for request in 0..640 {
        active.amounted(request % GROUPS, Measure::FirstToken, 139_000.0);
        canary.amounted(request % GROUPS, Measure::FirstToken, 182_000.0);
        active.happened(request % GROUPS, Measure::Traps, false);
        canary.happened(
            request % GROUPS,
            Measure::Traps,
            (request / GROUPS).is_multiple_of(4),
        );
    }
    let findings = compare(&active, &canary);
    let reason = |measure| {
        let found = findings.iter().find(|found| found.measure == measure);
        found.map(ToString::to_string)
    };
    assert_eq!(
        reason(Measure::FirstToken).as_deref(),
        Some(
            "the first token comes 31 % later: 182.0 ms against 139.0 ms (640 requests against 640)"
        )
    );
    assert_eq!(
        reason(Measure::Traps).as_deref(),
        Some("it traps more often: 25.00 % of requests against 0.00 % (640 requests against 640)")
    );
    // The strongest finding comes first.
    assert_eq!(
        worst(&findings).map(|found| found.measure),
        Some(Measure::Traps)
    );
}
