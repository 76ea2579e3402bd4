//! Items that users buy: monthly plans, and credits that do not expire.

use std::fmt;
use std::str::FromStr;

use weir_ledger::{Credits, Plan};

/// The currency of all prices, as the processor writes it. Settings have prices in its cents.
pub const CURRENCY: &str = "usd";

/// A tier of credits that do not expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopUpTier {
    /// 5,000 credits.
    Small,
    /// 27,500 credits.
    Medium,
    /// 125,000 credits.
    Large,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurchaseItem {
    /// A paid plan, by the month.
    Plan(Plan),
    /// Credits of a tier.
    TopUp(TopUpTier),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemPrice {
    /// In US cents.
    pub price_cents: u32,
    /// The processor's id of the price, if it has one.
    pub price_id: Option<String>,
}

impl TopUpTier {
    pub const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    /// Its name in the API and the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        }
    }

    pub const fn credits(self) -> Credits {
        match self {
            Self::Small => Credits::whole(5_000),
            Self::Medium => Credits::whole(27_500),
            Self::Large => Credits::whole(125_000),
        }
    }
}

impl fmt::Display for TopUpTier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The error for an unknown name of a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are the tiers small, medium and large")]
pub struct UnknownTier;

impl FromStr for TopUpTier {
    type Err = UnknownTier;

    fn from_str(name: &str) -> Result<Self, UnknownTier> {
        let mut all = Self::ALL.into_iter();
        all.find(|tier| tier.name() == name).ok_or(UnknownTier)
    }
}

impl PurchaseItem {
    pub fn all() -> impl Iterator<Item = Self> {
        let plans = Plan::ALL.into_iter().filter(|plan| *plan != Plan::Free);
        plans
            .map(Self::Plan)
            .chain(TopUpTier::ALL.into_iter().map(Self::TopUp))
    }

    /// The plan's name, or the tier's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plan(plan) => plan.name(),
            Self::TopUp(tier) => tier.name(),
        }
    }

    pub fn title(self) -> String {
        match self {
            Self::Plan(Plan::Free) => "Free plan".to_owned(),
            Self::Plan(Plan::Guru) => "Guru plan".to_owned(),
            Self::Plan(Plan::Pro) => "Pro plan".to_owned(),
            Self::TopUp(tier) => format!("{} credits", thousands(tier.credits())),
        }
    }

    /// The credits of the item; for a plan, per month.
    pub const fn credits(self) -> Credits {
        match self {
            Self::Plan(plan) => plan.monthly_credits(),
            Self::TopUp(tier) => tier.credits(),
        }
    }
}

/// Whole credits with thousands separators, for example `27,500`.
pub fn thousands(credits: Credits) -> String {
    let digits = (credits.micro() / 1_000_000).to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_have_names_and_credits() {
        let credits = TopUpTier::ALL.map(|tier| tier.credits().micro() / 1_000_000);
        assert_eq!(credits, [5_000, 27_500, 125_000]);
        for tier in TopUpTier::ALL {
            assert_eq!(tier.name().parse(), Ok(tier));
        }
        assert_eq!("Small".parse::<TopUpTier>(), Err(UnknownTier));
    }

    #[test]
    fn titles_are_for_people() {
        assert_eq!(PurchaseItem::Plan(Plan::Guru).title(), "Guru plan");
        assert_eq!(
            PurchaseItem::TopUp(TopUpTier::Medium).title(),
            "27,500 credits"
        );
        assert_eq!(thousands(Credits::whole(999)), "999");
        assert_eq!(thousands(Credits::whole(1_000_000)), "1,000,000");
    }
}
