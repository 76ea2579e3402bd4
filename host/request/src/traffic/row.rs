//! A row: its place, and its sums.

use std::time::Duration;

use weir_ledger::{Credits, TokenCounts};

use super::histogram::Histogram;

pub(super) const HOUR_MS: i64 = 3_600_000;

/// The kinds of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Each request, by its provider and model.
    Upstream,
    /// Each request, by the account that pays.
    Account,
    /// Requests with an API key.
    Key,
}

impl Scope {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            // The name is from a version that counted only organisations.
            Self::Account => "organisation",
            Self::Key => "key",
        }
    }
}

/// The side that caused an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The client's request, credits or rate.
    Client,
    Provider,
    /// This gateway, its plugins or its stores.
    Gateway,
}

impl Fault {
    /// Classifies an error by its code; `is_server_side` is whether its status is 5xx.
    pub fn of(code: &str, is_server_side: bool) -> Self {
        match is_server_side {
            false => Self::Client,
            true if code.starts_with("UPSTREAM_") => Self::Provider,
            true => Self::Gateway,
        }
    }
}

/// A model request of a known account at its end.
pub struct EndedCall<'a> {
    /// The provider of the last attempt.
    pub provider: Option<&'a str>,
    /// The model, by its id in the catalog.
    pub model: Option<&'a str>,
    /// The account that pays: a user's personal one, or an organisation.
    pub account: &'a str,
    /// The API key, by its id.
    pub key: Option<&'a str>,
    /// The side that caused the error, if there is one.
    pub fault: Option<Fault>,
    pub charged: Option<(TokenCounts, Credits)>,
    /// Time from the request to the first output of a stream.
    pub first_token: Option<Duration>,
    /// Time from the request to its end, including the charge.
    pub took: Duration,
}

/// The place of a row. The order is that of the table's key, so that nodes lock rows in the same order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowPlace {
    pub(super) scope: Scope,
    pub(super) hour: i64,
    pub(super) account: String,
    pub(super) key: String,
    pub(super) provider: String,
    pub(super) model: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrafficSums {
    /// Ended requests, including failed ones.
    pub requests: i64,
    /// Errors that clients caused.
    pub client_errors: i64,
    pub provider_errors: i64,
    pub gateway_errors: i64,
    /// Charged tokens of input.
    pub tokens_input: i64,
    /// Charged tokens of output.
    pub tokens_output: i64,
    pub credits: Credits,
    /// Times to first token of streams.
    pub first_token: Histogram,
    /// Total times of requests without an error.
    pub total: Histogram,
}

impl TrafficSums {
    pub(super) fn of(call: &EndedCall<'_>) -> Self {
        let (tokens, credits) = call.charged.unwrap_or_default();
        let count = |fault| i64::from(call.fault == Some(fault));
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let mut sums = Self {
            requests: 1,
            client_errors: count(Fault::Client),
            provider_errors: count(Fault::Provider),
            gateway_errors: count(Fault::Gateway),
            tokens_input: tokens.input as i64,
            tokens_output: tokens.output as i64,
            credits,
            ..Self::default()
        };
        if let Some(time) = call.first_token {
            sums.first_token.observe(ms(time));
        }
        // Rejections take no time, and would hide slow responses.
        if call.fault.is_none() {
            sums.total.observe(ms(call.took));
        }
        sums
    }

    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.client_errors += other.client_errors;
        self.provider_errors += other.provider_errors;
        self.gateway_errors += other.gateway_errors;
        self.tokens_input = self.tokens_input.saturating_add(other.tokens_input);
        self.tokens_output = self.tokens_output.saturating_add(other.tokens_output);
        self.credits = self.credits.saturating_add(other.credits);
        self.first_token.add(&other.first_token);
        self.total.add(&other.total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_side() {
        for (code, is_server_side, fault) in [
            ("INSUFFICIENT_CREDITS", false, Fault::Client),
            ("UPSTREAM_REJECTED", false, Fault::Client),
            ("UPSTREAM_TIMEOUT", true, Fault::Provider),
            ("OVERLOADED", true, Fault::Gateway),
        ] {
            assert_eq!(Fault::of(code, is_server_side), fault, "{code}");
        }
    }
}
