//! Simulated canaries. The generator is seeded: a run is the same each time.

use super::*;
use crate::plugins::canary::samples::GROUPS;

/// A generator by Sebastiano Vigna (SplitMix64): small, and good enough for this.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// From 0 to 1.
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn happens(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// Of the standard normal distribution, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Skewed as latencies are: one in a hundred is ten times the median with a `sigma` of 1.
    fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        median * (sigma * self.normal()).exp()
    }
}

/// What a component does.
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

/// An account, and how its requests differ from others': a factor of all its amounts, and of its errors.
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

/// Accounts in their groups. With a `sigma`, each has habits of its own.
fn accounts(dice: &mut Dice, number: usize, sigma: f64) -> Vec<Habit> {
    let account = |_| Habit {
        group: (dice.next() % GROUPS as u64) as usize,
        factor: dice.lognormal(1.0, sigma),
    };
    (0..number).map(account).collect()
}

/// A trial of so many requests, three of ten of which the canary serves, looked at after every hundred. Returns what spoke
/// against the canary, and after how many requests of its own.
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

/// The accounts of a canary are few, and not like the others: that is chance, too.
#[test]
fn nor_are_those_whose_accounts_have_habits_of_their_own() {
    let mut dice = Dice(2);
    for (others, few) in [(300, 30), (100, 5), (30, 3), (6, 2)] {
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
            Measure::Errors,
            Behaviour {
                errors: 0.15,
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
            // A fault is an error, too, and that may be certain a moment earlier.
            let is_it =
                finding.measure == measure || measure.is_share() && finding.measure.is_share();
            assert!(is_it, "{measure:?}: {finding}");
            slowest = slowest.max(after);
        }
        assert!(slowest <= 1_200, "{measure:?}: after {slowest} requests");
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
            active.happened(request % GROUPS, Measure::Errors, false);
            canary.happened(request % groups, Measure::Errors, true);
        }
        let findings = compare(&active, &canary);
        assert_eq!(is_enough(&findings), worst(&findings).is_some());
        is_enough(&findings)
    };
    assert!(!judged(99, 2));
    assert!(!judged(10_000, 1));
    assert!(judged(200, 2));
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
    // What says most comes first.
    assert_eq!(
        worst(&findings).map(|found| found.measure),
        Some(Measure::Traps)
    );
}
