//! The places where providers process data, and the days for which they keep requests.
//!
//! **Invariant:** an unknown place satisfies no list of regions, and an unknown retention no maximum.

use weir_request::limits::data::{DataLimits, Regions};

/// A provider's terms.
#[derive(Debug, Clone)]
pub enum DataTerms {
    /// The provider has no URL, so nothing leaves the gateway: it satisfies every limit.
    Local,
    /// The terms that the operator configured.
    Configured {
        /// The places where it processes data; `None` if they are unknown.
        regions: Option<Regions>,
        /// The days for which it keeps requests; `None` if they are unknown.
        retention_days: Option<u16>,
    },
}

impl DataTerms {
    fn are_within(&self, allowed: &Regions) -> bool {
        match self {
            Self::Local => true,
            Self::Configured { regions, .. } => {
                let regions = regions.as_ref();
                regions.is_some_and(|regions| allowed.include(regions))
            }
        }
    }

    fn keep_at_most(&self, days: u16) -> bool {
        match self {
            Self::Local => true,
            Self::Configured { retention_days, .. } => {
                retention_days.is_some_and(|retention| retention <= days)
            }
        }
    }

    /// Returns the part of some limits that the terms do not satisfy.
    pub fn unsatisfied(&self, limits: &DataLimits) -> DataLimits {
        let (regions, days) = (limits.regions.as_ref(), limits.max_retention_days);
        DataLimits {
            regions: regions.filter(|allowed| !self.are_within(allowed)).cloned(),
            max_retention_days: days.filter(|days| !self.keep_at_most(*days)),
        }
    }
}
