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
//! nothing that it has done. And an account may mean harm: it can send garbage to have a canary look bad, or outliers so that
//! nothing is ever certain. So accounts are in [groups](super::samples::GROUPS) that count alike, however many requests each has
//! sent, and each side is summed up robustly: by the mean of its groups' means without the lowest and the highest fifth of them, and
//! by their Winsorized variance (Yuen, *The two-sample trimmed t for unequal population variances*, 1974). The sides' variances are not
//! pooled. One account is in one group, on one side: it can move neither by more than another group's value, and cannot widen the
//! interval. With fewer than [`LEAST_GROUPS`] groups on a side, nothing is said.
//!
//! A canary ends where harm is certain. It is promoted where it is certain, of every measure, that there is no
//! [harm](Bar::harm): where the whole interval is below that. While neither is certain, it goes on.

use std::fmt;

use super::samples::{Moments, VALUES_PER_E};
use super::{Measure, Samples};

/// Requests on each side before anything is said of a measure.
pub const LEAST_REQUESTS: i64 = 100;

/// Groups of accounts on each side, likewise: fewer cannot outvote one.
pub const LEAST_GROUPS: usize = 6;

/// How probable it is for a canary that is no worse to be found worse by one measure, ever. Over the nine of them that can end a
/// canary that is less than one in a hundred.
const FALSE_ALARMS: f64 = 0.001;

/// How probable it is for a canary whose harm is at the bound to be found without harm by one measure, ever.
const FALSE_PROMOTIONS: f64 = 0.05;

/// The part of groups that is left out at each end.
const TRIMMED: f64 = 0.2;

/// What the variance between groups is raised by where it is estimated of few: by so many parts of itself, divided by how
/// many groups there are to spare.
const FEW_GROUPS: f64 = 12.0;

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
    /// Neither harm nor that there is none is certain.
    Open,
    /// The canary does no harm, for certain.
    Alike,
    /// The canary is worse, for certain.
    Worse,
}

impl Judgement {
    /// As it stands in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooFew => "too_few",
            Self::Open => "open",
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

/// Whether it is certain that a canary does no harm, by every measure that enough of the others' requests have.
pub fn is_harmless(findings: &[Finding]) -> bool {
    let is_measured =
        |finding: &&Finding| finding.measure == Measure::Faults || finding.active.is_enough();
    let mut measured = findings.iter().filter(is_measured);
    measured.all(|finding| finding.judgement == Judgement::Alike)
}

/// What speaks most against a canary, if anything does that ends one.
pub fn worst(findings: &[Finding]) -> Option<&Finding> {
    let mut findings = findings.iter();
    findings
        .find(|finding| finding.judgement == Judgement::Worse && finding.measure != Measure::Errors)
}

/// What matters of a measure.
struct Bar {
    /// The smallest difference that ends a canary, where it is certain.
    least: f64,
    /// The bound of harm: a canary is promoted only where it is certain that the difference is less.
    harm: f64,
    /// The standard deviation of the mixture: the difference that is found soonest.
    mixture: f64,
    /// Whether less is as bad as more.
    is_two_sided: bool,
}

impl Measure {
    fn bar(self) -> Bar {
        match self {
            // Percentage points.
            Self::Traps | Self::Faults => Bar {
                least: 0.01,
                harm: 0.02,
                mixture: 0.05,
                is_two_sided: false,
            },
            Self::Errors => Bar {
                least: 0.01,
                harm: 0.05,
                mixture: 0.05,
                is_two_sided: false,
            },
            // A filter that lets pass what it should not is as bad as one that refuses everybody.
            Self::Refusals | Self::Changes | Self::Stops => Bar {
                least: 0.05,
                harm: 0.1,
                mixture: 0.1,
                is_two_sided: true,
            },
            Self::FirstToken | Self::Latency => Bar {
                least: 1.1_f64.ln(),
                harm: 1.5_f64.ln(),
                mixture: 1.3_f64.ln(),
                is_two_sided: false,
            },
            // Who reports too little has weir pay for the rest.
            Self::Tokens | Self::Charge => Bar {
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
    /// The variance of that.
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
            // For people alone.
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
        // Each that is left out counts as the nearest that is not.
        let (lowest, highest) = (kept[0], kept[kept.len() - 1]);
        let pulled: Vec<_> = means.iter().map(|of| of.clamp(lowest, highest)).collect();
        let pulled_mean = pulled.iter().sum::<f64>() / groups as f64;
        let spread: f64 = pulled.iter().map(|of| (of - pulled_mean).powi(2)).sum();
        let between = spread / (kept.len() as f64 * to_spare);
        // Of what requests alone bring about: no less than that is believed, however alike a few groups happen to be.
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

/// The variance of a group's mean that its requests bring about: the median over the groups.
fn noise(groups: &[Moments], measure: Measure, mean: f64) -> f64 {
    let of_group = |group: &Moments| {
        let (count, sum) = (group.count as f64, group.sum as f64);
        let of_a_request = if measure.is_share() {
            // As if there had been one of each kind more on the side: that nothing happened yet is not certainty.
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
    // Where nothing ever differs, no difference is chance.
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
                Measure::Faults => "it is at fault",
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

/// A value with its unit, for people; `-` where there is none.
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
