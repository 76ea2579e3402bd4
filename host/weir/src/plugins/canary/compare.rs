//! Whether a canary is worse than what serves: a sequential test.
//!
//! Figures are looked at again and again while they come in. A test that is right once in a hundred looks by chance is
//! nearly sure to be wrong in a thousand looks, so that this one is *always valid*: the interval around the difference holds
//! the true difference at all looks together, with a probability of all but [`FALSE_ALARMS`]. It is the mixture sequential
//! probability ratio test with a normal mixture (Robbins 1970; Johari, Pekelis, Walsh, *Always valid inference*, 2015), turned
//! into an interval: for a difference of variance `v` and a mixture of variance `t`, its half width is
//! `sqrt(v (v + t) / t · (ln((v + t) / v) + 2 ln(1 / alpha)))`.
//!
//! A canary is worse where the whole interval is beyond the smallest difference that matters. To be two per cent slower, and
//! be it for certain, is no reason to take a component back.
//!
//! Requests of one account are like each other, and a canary has few accounts: that its users write longer prompts is
//! nothing that it has done. So accounts are in [groups](super::samples::GROUPS) that count alike, however many requests each
//! has sent. The variance of a side is that of requests *and* that between groups, which is estimated over both sides
//! (the method of moments for random effects; DerSimonian, Laird 1986, without weights) and raised where there are few of
//! them. Where all of a side is in one group, nothing is said at all.

use std::fmt;

use super::samples::VALUES_PER_E;
use super::{Measure, Samples};

/// Requests on each side before anything is said of a measure.
pub const LEAST_REQUESTS: i64 = 100;

/// Groups of accounts on each side, likewise.
pub const LEAST_GROUPS: usize = 2;

/// How probable it is for a canary that is no worse to be found worse by one measure, ever. Over all seven of them that is
/// less than one in a hundred.
const FALSE_ALARMS: f64 = 0.001;

/// What the variance between groups is raised by where it is estimated of few: by so many parts of itself, divided by how
/// many groups there are to spare.
const FEW_GROUPS: f64 = 8.0;

/// How one measure of a canary compares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Finding {
    /// What is compared.
    pub measure: Measure,
    /// Of what serves the others.
    pub active: Estimate,
    /// Of the canary.
    pub canary: Estimate,
    /// What the test says.
    pub judgement: Judgement,
}

/// What is known of a measure on one side.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// Requests.
    pub requests: i64,
    /// Groups of accounts that they are of.
    pub groups: usize,
    /// The share of requests, or the geometric mean of amounts, over groups. Not a number without a request.
    pub value: f64,
}

/// What the test says of a measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing: there are too few requests, or accounts.
    TooFew,
    /// No difference that matters is certain.
    Alike,
    /// The canary is worse.
    Worse,
}

impl Judgement {
    /// As it stands in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooFew => "too_few",
            Self::Alike => "alike",
            Self::Worse => "worse",
        }
    }
}

/// Compares a canary with what serves the others, by each measure.
pub fn compare(active: &Samples, canary: &Samples) -> [Finding; Measure::ALL.len()] {
    Measure::ALL.map(|measure| {
        let sides = [active, canary].map(|samples| Side::of(samples, measure));
        let [active, canary] = &sides;
        Finding {
            measure,
            active: active.estimate(measure),
            canary: canary.estimate(measure),
            judgement: judge(measure, active, canary),
        }
    })
}

/// Whether there is enough for a canary to be promoted: of the requests themselves, whatever else is known of each.
pub fn is_enough(findings: &[Finding]) -> bool {
    let mut findings = findings.iter();
    findings
        .any(|finding| finding.measure == Measure::Errors && finding.judgement != Judgement::TooFew)
}

/// What speaks most against a canary, if anything does.
pub fn worst(findings: &[Finding]) -> Option<&Finding> {
    let mut findings = findings.iter();
    findings.find(|finding| finding.judgement == Judgement::Worse)
}

/// What matters of a measure.
struct Bar {
    /// The smallest difference that does.
    least: f64,
    /// The standard deviation of the mixture: the difference that is found soonest.
    mixture: f64,
    /// Whether less is as bad as more.
    is_two_sided: bool,
}

impl Measure {
    fn bar(self) -> Bar {
        match self {
            // A percentage point.
            Self::Traps | Self::Faults | Self::Errors => Bar {
                least: 0.01,
                mixture: 0.05,
                is_two_sided: false,
            },
            Self::FirstToken | Self::Latency => Bar {
                least: 1.1_f64.ln(),
                mixture: 1.3_f64.ln(),
                is_two_sided: false,
            },
            // Who reports too little has weir pay for the rest.
            Self::Tokens | Self::Charge => Bar {
                least: 1.1_f64.ln(),
                mixture: 1.3_f64.ln(),
                is_two_sided: true,
            },
        }
    }
}

/// One side of a comparison, by one measure.
struct Side {
    requests: i64,
    /// Groups with a request.
    groups: f64,
    /// The mean of the groups' means.
    mean: f64,
    /// How far the groups' means are from it: the sum of the squares.
    spread: f64,
    /// The variance of a group's mean that requests bring about, on average over the groups.
    noise: f64,
}

impl Side {
    fn of(samples: &Samples, measure: Measure) -> Self {
        let scale = match measure.is_share() {
            true => 1.0,
            false => VALUES_PER_E,
        };
        let filled = || samples.groups(measure).filter(|group| group.count > 0);
        let groups = filled().count() as f64;
        let requests = filled().map(|group| group.count).sum::<i64>();
        let means = || filled().map(move |group| group.sum as f64 / group.count as f64 / scale);
        let mean = means().sum::<f64>() / groups;
        let spread = means().map(|of_group| (of_group - mean).powi(2)).sum();
        let of_a_request = if measure.is_share() {
            // As if there had been one of each kind more: that nothing happened yet is not certainty.
            let happened = filled().map(|group| group.sum).sum::<i64>();
            let share = (happened + 1) as f64 / (requests + 2) as f64;
            share * (1.0 - share)
        } else {
            let within: f64 = filled()
                .map(|group| group.squares as f64 - (group.sum as f64).powi(2) / group.count as f64)
                .sum();
            // No group differs from itself: it is groups less than requests.
            within.max(0.0) / (requests as f64 - groups).max(1.0) / scale.powi(2)
        };
        let noise = filled()
            .map(|group| of_a_request / group.count as f64)
            .sum::<f64>()
            / groups;
        Self {
            requests,
            groups,
            mean,
            spread,
            noise,
        }
    }

    fn estimate(&self, measure: Measure) -> Estimate {
        let value = match measure.is_share() {
            true => self.mean,
            false => Measure::amount(self.mean * VALUES_PER_E),
        };
        Estimate {
            requests: self.requests,
            groups: self.groups as usize,
            value,
        }
    }

    fn is_enough(&self) -> bool {
        self.requests >= LEAST_REQUESTS && self.groups >= LEAST_GROUPS as f64
    }
}

fn judge(measure: Measure, active: &Side, canary: &Side) -> Judgement {
    if !active.is_enough() || !canary.is_enough() {
        return Judgement::TooFew;
    }
    let bar = measure.bar();
    let difference = canary.mean - active.mean;
    let beyond = match bar.is_two_sided {
        true => difference.abs(),
        false => difference,
    };
    let half_width = half_width(variance(active, canary), bar.mixture.powi(2));
    match beyond - half_width > bar.least {
        true => Judgement::Worse,
        false => Judgement::Alike,
    }
}

/// The variance of the difference between two sides.
fn variance(active: &Side, canary: &Side) -> f64 {
    let sides = [active, canary];
    let to_spare: f64 = sides.iter().map(|side| side.groups - 1.0).sum();
    // What the groups' means differ by beyond what requests bring about.
    let excess: f64 = sides
        .iter()
        .map(|side| side.spread - (side.groups - 1.0) * side.noise)
        .sum();
    let between = (excess / to_spare).max(0.0) * (1.0 + FEW_GROUPS / to_spare);
    sides
        .iter()
        .map(|side| (side.noise + between) / side.groups)
        .sum()
}

fn half_width(variance: f64, mixture: f64) -> f64 {
    // Where nothing ever differs, no difference is chance.
    if variance <= 0.0 {
        return 0.0;
    }
    let both = variance + mixture;
    let surprise = (both / variance).ln() + 2.0 * (1.0 / FALSE_ALARMS).ln();
    (variance * both / mixture * surprise).sqrt()
}

/// A reason, for people.
impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (here, there) = (self.canary.value, self.active.value);
        if self.measure.is_share() {
            let what = match self.measure {
                Measure::Traps => "it traps",
                Measure::Faults => "it is at fault",
                _ => "requests fail",
            };
            write!(
                formatter,
                "{what} more often: {} of requests against {}",
                in_words(self.measure, here),
                in_words(self.measure, there)
            )?;
        } else {
            let (is, more, less) = match self.measure {
                Measure::FirstToken => ("the first token comes", "later", "earlier"),
                Measure::Latency => ("requests take", "longer", "shorter"),
                Measure::Tokens => (
                    "requests are reported to have",
                    "more tokens",
                    "fewer tokens",
                ),
                _ => ("requests are charged", "more", "less"),
            };
            let percent = 100.0 * (here / there - 1.0);
            let direction = if percent < 0.0 { less } else { more };
            write!(
                formatter,
                "{is} {:.0} % {direction}: {} against {}",
                percent.abs(),
                in_words(self.measure, here),
                in_words(self.measure, there)
            )?;
        }
        write!(
            formatter,
            " ({} requests against {})",
            self.canary.requests, self.active.requests
        )
    }
}

/// A value with its unit, for people; `-` where there is none.
pub fn in_words(measure: Measure, value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    match measure {
        Measure::Traps | Measure::Faults | Measure::Errors => format!("{:.2} %", 100.0 * value),
        Measure::FirstToken | Measure::Latency => format!("{:.1} ms", value / 1e3),
        Measure::Tokens => format!("{value:.1}"),
        Measure::Charge => format!("{:.6}", value / 1e6),
    }
}

#[cfg(test)]
mod tests;
