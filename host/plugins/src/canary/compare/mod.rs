//! The comparison of a canary with the active component: a sequential test.
//!
//! The figures are examined repeatedly while they come in. A test that errs once in a hundred examinations errs
//! almost surely in a thousand, so this test is *always valid*: the interval around the difference contains the true
//! difference at all examinations together, with a probability of all but [`FALSE_ALARMS`]. The test is the mixture
//! sequential probability ratio test with a normal mixture (Robbins 1970; Johari, Pekelis, Walsh, *Always valid
//! inference*, 2015), turned into an interval: for a difference of variance `v` and a mixture of variance `t`, its
//! half width is `sqrt(v (v + t) / t · (ln((v + t) / v) + 2 ln(1 / alpha)))`.
//!
//! A canary is worse if the complete interval is beyond the smallest difference that matters. A certain slowdown of
//! two per cent is no reason to roll a component back.
//!
//! Requests of one account resemble each other, and a canary has few accounts: its users' longer prompts are not its
//! doing. An account may also be hostile: it can send garbage to make a canary look bad, or outliers to prevent any
//! certainty. Accounts are therefore in [groups](super::samples::GROUPS) of equal weight, regardless of their numbers
//! of requests, and each side has a robust summary: the mean of its groups' means without the lowest and the highest
//! fifth, and their Winsorized variance (Yuen, *The two-sample trimmed t for unequal population variances*, 1974).
//! The sides' variances are not pooled. One account is in one group, on one side: it can move neither side by more
//! than another group's value, and cannot widen the interval. With fewer than [`LEAST_GROUPS`] groups on a side, the
//! test gives no result.
//!
//! A canary ends if harm is certain. It is promoted if for every measure the absence of [harm](MeasureBounds::harm) is certain,
//! that is if the complete interval is below that bound. While neither is certain, the canary continues.

use std::fmt;

use super::samples::{Moments, VALUES_PER_E};
use super::{Measure, Samples};

/// Minimum requests on each side for a result on a measure.
pub const LEAST_REQUESTS: i64 = 100;

/// Minimum groups of accounts on each side: fewer cannot outvote one group.
pub const LEAST_GROUPS: usize = 6;

/// Probability that a measure ever finds a harmless canary worse. Over the nine measures that can end a canary, the
/// probability is less than one in a hundred.
const FALSE_ALARMS: f64 = 0.001;

/// Probability that a measure ever clears a canary whose harm is at the bound.
const FALSE_PROMOTIONS: f64 = 0.05;

/// Fraction of groups that is trimmed at each end.
const TRIMMED: f64 = 0.2;

/// Correction of the variance between groups if few groups estimate it: the variance is raised by this many parts of
/// itself, divided by the number of groups beyond the minimum.
const FEW_GROUPS: f64 = 12.0;

/// The comparison of a canary by one measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Finding {
    pub measure: Measure,
    /// The active component's side.
    pub active: Estimate,
    /// The canary's side.
    pub canary: Estimate,
    /// The test's result.
    pub judgement: Judgement,
}

/// The estimate of a measure on one side.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    pub requests: i64,
    /// Groups of accounts that sent these requests.
    pub groups: usize,
    /// The share of requests, or the geometric mean of amounts, over groups. NaN without a request.
    pub value: f64,
}

/// The test's result on a measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Too few requests or accounts.
    TooFew,
    /// Neither harm nor its absence is certain.
    Open,
    /// The absence of harm is certain.
    Alike,
    /// The harm is certain.
    Worse,
}

impl Judgement {
    /// The name in responses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooFew => "too_few",
            Self::Open => "open",
            Self::Alike => "alike",
            Self::Worse => "worse",
        }
    }
}

/// Compares a canary with the active component, by each measure.
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

/// Returns whether the absence of harm is certain, by every measure for which the active component has enough
/// requests.
pub fn is_harmless(findings: &[Finding]) -> bool {
    let is_measured =
        |finding: &&Finding| finding.measure == Measure::Faults || finding.active.is_enough();
    let mut measured = findings.iter().filter(is_measured);
    measured.all(|finding| finding.judgement == Judgement::Alike)
}

/// Returns the strongest finding that ends a canary, if there is one.
pub fn worst(findings: &[Finding]) -> Option<&Finding> {
    let mut findings = findings.iter();
    findings
        .find(|finding| finding.judgement == Judgement::Worse && finding.measure != Measure::Errors)
}

struct MeasureBounds {
    /// The smallest difference that ends a canary, if certain.
    least: f64,
    /// The bound of harm: a canary is promoted only if the difference is certainly less.
    harm: f64,
    /// The standard deviation of the mixture: the difference that the test finds soonest.
    mixture: f64,
    /// Marks a measure for which a decrease is as bad as an increase.
    is_two_sided: bool,
}

impl Measure {
    fn bar(self) -> MeasureBounds {
        match self {
            // Percentage points.
            Self::Traps | Self::Faults => MeasureBounds {
                least: 0.01,
                harm: 0.02,
                mixture: 0.05,
                is_two_sided: false,
            },
            Self::Errors => MeasureBounds {
                least: 0.01,
                harm: 0.05,
                mixture: 0.05,
                is_two_sided: false,
            },
            // A filter that passes harmful requests is as bad as a filter that refuses all.
            Self::Refusals | Self::Changes | Self::Stops => MeasureBounds {
                least: 0.05,
                harm: 0.1,
                mixture: 0.1,
                is_two_sided: true,
            },
            Self::FirstToken | Self::Latency => MeasureBounds {
                least: 1.1_f64.ln(),
                harm: 1.5_f64.ln(),
                mixture: 1.3_f64.ln(),
                is_two_sided: false,
            },
            // A component that reports too little makes weir pay for the rest.
            Self::Tokens | Self::Charge => MeasureBounds {
                least: 1.1_f64.ln(),
                harm: 1.5_f64.ln(),
                mixture: 1.3_f64.ln(),
                is_two_sided: true,
            },
        }
    }
}

impl Estimate {
    fn is_enough(&self) -> bool {
        self.requests >= LEAST_REQUESTS && self.groups >= LEAST_GROUPS
    }
}

/// One side of a comparison, by one measure.
struct Side {
    requests: i64,
    /// Groups with a request.
    groups: usize,
    /// The trimmed mean of the groups' means.
    mean: f64,
    /// The variance of that mean.
    variance: f64,
}

impl Side {
    fn of(samples: &Samples, measure: Measure) -> Self {
        let filled: Vec<_> = samples
            .groups(measure)
            .filter(|group| group.count > 0)
            .collect();
        let requests = filled.iter().map(|group| group.count).sum();
        let groups = filled.len();
        if groups < LEAST_GROUPS {
            // For display only.
            let means: f64 = filled.iter().map(|group| mean_of(group, measure)).sum();
            let mean = means / groups as f64;
            return Self {
                requests,
                groups,
                mean,
                variance: f64::INFINITY,
            };
        }
        let trimmed = ((groups as f64 * TRIMMED) as usize).max(1);
        let mut means: Vec<_> = filled.iter().map(|group| mean_of(group, measure)).collect();
        means.sort_by(f64::total_cmp);
        let kept = &means[trimmed..groups - trimmed];
        let to_spare = (kept.len() - 1) as f64;
        let mean = kept.iter().sum::<f64>() / kept.len() as f64;
        // Each trimmed value counts as the nearest value that remains.
        let (lowest, highest) = (kept[0], kept[kept.len() - 1]);
        let pulled: Vec<_> = means.iter().map(|of| of.clamp(lowest, highest)).collect();
        let pulled_mean = pulled.iter().sum::<f64>() / groups as f64;
        let spread: f64 = pulled.iter().map(|of| (of - pulled_mean).powi(2)).sum();
        let between = spread / (kept.len() as f64 * to_spare);
        // The variance from requests alone is a lower bound, even if a few groups happen to be more alike.
        let within = noise(&filled, measure, mean) / kept.len() as f64;
        let excess = (between - within).max(0.0);
        Self {
            requests,
            groups,
            mean,
            variance: within + excess * (1.0 + FEW_GROUPS / to_spare),
        }
    }

    fn estimate(&self, measure: Measure) -> Estimate {
        let value = match measure.is_share() {
            true => self.mean,
            false => Measure::amount(self.mean * VALUES_PER_E),
        };
        Estimate {
            requests: self.requests,
            groups: self.groups,
            value,
        }
    }
}

fn scale(measure: Measure) -> f64 {
    match measure.is_share() {
        true => 1.0,
        false => VALUES_PER_E,
    }
}

fn mean_of(group: &Moments, measure: Measure) -> f64 {
    group.sum as f64 / group.count as f64 / scale(measure)
}

/// Returns the variance of a group's mean that its requests cause: the median over the groups.
fn noise(groups: &[Moments], measure: Measure, mean: f64) -> f64 {
    let of_group = |group: &Moments| {
        let (count, sum) = (group.count as f64, group.sum as f64);
        let of_a_request = if measure.is_share() {
            // One more request of each kind is assumed on the side: the absence of an event so far is not certainty.
            let requests: i64 = groups.iter().map(|group| group.count).sum();
            let requests = requests as f64;
            let share = (mean * requests + 1.0) / (requests + 2.0);
            share * (1.0 - share)
        } else {
            let within = group.squares as f64 - sum.powi(2) / count;
            within.max(0.0) / (count - 1.0).max(1.0) / scale(measure).powi(2)
        };
        of_a_request / count
    };
    let mut of_groups: Vec<_> = groups.iter().map(of_group).collect();
    of_groups.sort_by(f64::total_cmp);
    of_groups[of_groups.len() / 2]
}

fn judge(measure: Measure, active: &Side, canary: &Side) -> Judgement {
    let sides = [active, canary].map(|side| side.estimate(measure));
    if !sides.iter().all(Estimate::is_enough) {
        return Judgement::TooFew;
    }
    let bar = measure.bar();
    let difference = canary.mean - active.mean;
    let beyond = match bar.is_two_sided {
        true => difference.abs(),
        false => difference,
    };
    let variance = active.variance + canary.variance;
    let mixture = bar.mixture.powi(2);
    if beyond - half_width(variance, mixture, FALSE_ALARMS) > bar.least {
        Judgement::Worse
    } else if beyond + half_width(variance, mixture, FALSE_PROMOTIONS) < bar.harm {
        Judgement::Alike
    } else {
        Judgement::Open
    }
}

fn half_width(variance: f64, mixture: f64, alpha: f64) -> f64 {
    // Without any variance, no difference is chance.
    if variance <= 0.0 {
        return 0.0;
    }
    let both = variance + mixture;
    let surprise = (both / variance).ln() + 2.0 * (1.0 / alpha).ln();
    (variance * both / mixture * surprise).sqrt()
}

/// A reason, for people.
impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (here, there) = (self.canary.value, self.active.value);
        if self.measure.is_share() {
            let what = match self.measure {
                Measure::Traps => "it traps",
                Measure::Faults => "it fails by its own fault",
                Measure::Refusals => "it refuses requests",
                Measure::Changes => "it changes requests or answers",
                Measure::Stops => "it stops answers",
                _ => "requests fail",
            };
            let often = if here < there { "less" } else { "more" };
            write!(
                formatter,
                "{what} {often} often: {} of requests against {}",
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

/// Formats a value with its unit, for people; `-` for none.
pub fn in_words(measure: Measure, value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    match measure {
        _ if measure.is_share() => format!("{:.2} %", 100.0 * value),
        Measure::FirstToken | Measure::Latency => format!("{:.1} ms", value / 1e3),
        Measure::Tokens => format!("{value:.1}"),
        _ => format!("{:.6}", value / 1e6),
    }
}

#[cfg(test)]
mod tests;
