//! The meter of one request: its hold, its usage and its charge.
//!
//! The charge at the end of a request:
//!
//! | End of the request | Charge |
//! |---|---|
//! | complete response, even if empty | the upstream's reported usage, within the bounds of [`usage::check`] |
//! | stopped at a limit | the same |
//! | client disconnected from a stream after weir sent the request upstream | usage until the end of the drain time, at least an estimate of the received data |
//! | client disconnected from another request | usage of the complete response, which weir awaits within the deadline |
//! | the gateway stops while such a request is at its provider | the whole hold |
//! | stream failed after partial delivery | the same |
//! | task aborted | the last checkpoint |
//! | step of a swarm while its node stops | nothing: another node repeats it |
//! | step of a swarm that is cancelled, or over | as for a client that disconnected |
//! | plain response cut at the deadline, with usable text | the same as for a disconnected client |
//! | any other end, without delivery | nothing |
//! | response of a filter, without a hold | nothing |
//! | response from the cache | the operator's share of the price of its usage |
//!
//! Clients pay only the upstream whose response they receive. If weir cuts off an attempt, or a response fails midway,
//! the provider still charges for it. weir books that as a cost without revenue, by estimate unless the upstream has
//! reported its usage.
//!
//! With a price per image, weir charges the delivered, complete images, up to the requested number. If the response has
//! only a preview or text, weir charges one image, because the provider charges, too.
//!
//! An upstream's rejection, an adapter's failure and a response that failed before the client received any data belong
//! to the last row.
//!
//! **Invariant:** every open hold ends: by [`Meter::settle`], by [`Meter::release`], or, after a panic of the task,
//! when the meter is dropped. If the process ends first, a hold in memory ends with it, and the ledger's sweep ends a
//! stored one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_accounts::billing;
use weir_dialects::BilledUsage;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::part_rates::RequestRates;
use weir_ledger::price::{Price, PriceFactors};
use weir_ledger::pricing::{self, RequestCharge};
use weir_ledger::receipt::ReceiptFacts;
use weir_ledger::usage::{Billable, Quantity};
use weir_ledger::{
    AccountId, BudgetPart, Checkpoint, Credits, EndKey, HoldId, IdempotencyClaim, Ledger,
    LedgerError, LedgerRefusal, OpenHold, Payer, RequestUsage, Settle, Settlement, TokenCounts,
    UsageCounts,
};
use weir_plugins::canary::samples::Sampler;
use weir_plugins::metrics::PluginMetrics;
use weir_plugins::{Component, Plugin};
use weir_storage::Cache;
use weir_storage::clock::Millis;
use weir_storage::ids;
use weir_upstream::sequence::Sequence;
use weir_upstream::usage::{self, CheckedUsage, ModelLimits, RequestSize};

use weir_payments::BuyingPages;

use super::InferenceParts;

/// The maximum delay of a finished response until its settlement is durable.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for which weir keeps a response with a late settlement for its idempotency key.
const LATE_TIMEOUT: Duration = Duration::from_secs(120);

/// The maximum delay of a failed request until its hold is released.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// The plausible maximum of output bytes per token.
const MAX_BYTES_PER_TOKEN: u64 = 8;

/// The data of a request before it is sent.
#[derive(Debug, Clone)]
pub struct MeteredRequest {
    /// The request's id.
    pub request_id: String,
    /// The model, as the client named it.
    pub model: String,
    /// Whether the account's plan includes the model.
    pub in_plan: bool,
    /// The size of the input.
    pub size: RequestSize,
    /// The limits of the model.
    pub limits: ModelLimits,
    /// The requested number of images.
    pub images: u32,
    /// The version of the catalog's layer.
    pub catalog_version: i64,
}

/// The upstream of an attempt.
#[derive(Clone)]
pub struct Attempt {
    /// The provider's name.
    pub provider: String,
    /// The adapter that translates.
    pub adapter: Arc<Component>,
    /// The sampler of the charge, if the adapter's slot has a canary.
    pub sampler: Option<Sampler>,
    /// The model's price at the upstream.
    pub price: Price,
}

/// The price of a response from the cache.
pub struct CachedCharge {
    /// The provider that made the response.
    pub provider: String,
    /// The digest of its adapter.
    pub adapter_digest: String,
    /// The model's price at this provider.
    pub price: Price,
    /// The percentage that the client pays. The provider gets nothing.
    pub percent: u8,
}

/// The request has reached its limits: the response ends here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitReached;

/// The meter of one request.
pub struct Meter {
    ledger: Ledger,
    cache: Cache,
    factors: PriceFactors,
    payer: Payer,
    rates: RequestRates,
    metered: MeteredRequest,
    hold: HoldId,
    held: Credits,
    attempt: Option<Attempt>,
    /// The price of a response from the cache, which has no attempt.
    cached: Option<CachedCharge>,
    /// The number of attempts.
    attempts: u32,
    /// The providers' charges, in nano-USD, for attempts that the client does not pay: a cost of the request.
    written_off_nano_usd: i64,
    started: Instant,
    /// The minimum time between two checkpoints. Checkpoints depend on time alone, because a fast stream's would
    /// otherwise cost more than the rest of the request.
    checkpoint_every: Duration,
    /// The timeout of opening the hold.
    open_timeout: Duration,
    checkpointed_bytes: u64,
    checkpointed_at: Instant,
    state: MeterState,
    /// Whether the charge is the whole hold, because nobody will learn the usage.
    charges_hold: bool,
    /// Whether the provider has sent more items than the request asked for, which weir has dropped.
    has_surplus: bool,
    metrics: Arc<PluginMetrics>,
    /// A requested settlement that was not durable in time.
    late: Option<(Settle, BilledUsage)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MeterState {
    New,
    /// The hold is open, or may be.
    Open,
    Ended,
}

impl Meter {
    /// Returns the meter of a request before its hold. The factors multiply its prices.
    pub fn new(
        parts: &InferenceParts,
        payer: Payer,
        rates: RequestRates,
        metered: MeteredRequest,
        factors: PriceFactors,
    ) -> Self {
        let now = Instant::now();
        let hold = ids::hold_of_request(&metered.request_id).unwrap_or_else(ids::hold_id);
        Self {
            ledger: parts.ledger.clone(),
            cache: parts.cache.clone(),
            factors,
            payer,
            rates,
            metered,
            hold: HoldId(hold),
            held: Credits::ZERO,
            attempt: None,
            cached: None,
            attempts: 0,
            written_off_nano_usd: 0,
            started: now,
            checkpoint_every: parts.checkpoint_every,
            open_timeout: parts.hold_timeout,
            checkpointed_bytes: 0,
            checkpointed_at: now,
            state: MeterState::New,
            charges_hold: false,
            has_surplus: false,
            metrics: parts.oversight.metrics.clone(),
            late: None,
        }
    }

    /// Returns the maximum cost of the request at any of these prices.
    pub fn worst_case<'a>(&self, prices: impl Iterator<Item = &'a Price>) -> Credits {
        let MeteredRequest {
            size,
            limits,
            images,
            ..
        } = &self.metered;
        let bound = size.bound(limits, *images);
        let worst = prices.map(|price| pricing::worst_case(price, &self.factors, &bound));
        worst.max().unwrap_or(Credits::ZERO)
    }

    /// Sets the price of a response from the cache. Returns the charge for the response with these events.
    pub fn repeat(&mut self, cached: CachedCharge, sequence: &Sequence) -> Credits {
        self.cached = Some(cached);
        self.price(sequence).1.credits
    }

    /// Reserves this amount, and claims the request's idempotency key, if there is one; see [`Ledger::open_request`].
    /// The value is the time of the hold.
    pub async fn open(
        &mut self,
        amount: Credits,
        claim: Option<IdempotencyClaim>,
    ) -> Result<Millis, LedgerError> {
        if let Some(most) = self.payer.most.filter(|most| amount > *most) {
            return Err(LedgerError::Refused(LedgerRefusal::Insufficient {
                required: amount,
                available: most,
            }));
        }
        self.held = amount;
        let open = OpenHold {
            hold: self.hold.clone(),
            amount: self.held,
            request_id: self.metered.request_id.clone(),
            parent: None,
            source: self.payer.source,
            source_id: self.payer.source_id.clone(),
            parts: self.parts(),
            top_up_only: !self.metered.in_plan,
            model: self.metered.model.clone(),
        };
        let deadline = Instant::now() + self.open_timeout;
        let at = self
            .ledger
            .open_request(&self.payer.account, open, claim, deadline)
            .await?;
        self.state = MeterState::Open;
        Ok(at)
    }

    /// Returns the parts of the account whose budgets apply: the payer's, and the model.
    fn parts(&self) -> Vec<BudgetPart> {
        self.payer.parts_with_model(&self.metered.model)
    }

    /// The account that pays.
    pub fn account(&self) -> &AccountId {
        &self.payer.account
    }

    /// Counts an attempt, on the same or another upstream.
    pub fn count_attempt(&mut self) {
        self.attempts += 1;
    }

    /// Starts an attempt on an upstream, and discards the previous attempt's usage.
    pub fn attempt(&mut self, attempt: Attempt) {
        self.attempt = Some(attempt);
        self.checkpointed_bytes = 0;
    }

    /// Adds the provider's charge for the attempt to weir's own cost, but to no bill: by the reported usage, or else by
    /// estimate. The estimate assumes that the provider made all requested images.
    pub fn write_off(&mut self, sequence: &Sequence) {
        let (checked, mut charge) = self.price(sequence);
        let price = self.attempt.as_ref().map(|attempt| &attempt.price);
        if let Some(price @ Price::Image(_)) = price {
            let used = Billable {
                images: self.metered.images,
                ..checked.used
            };
            charge = pricing::charge(price, &self.factors, &used);
        }
        let cost = charge.provider_cost_nano_usd;
        self.written_off_nano_usd = self.written_off_nano_usd.saturating_add(cost);
    }

    /// Records that weir has dropped items that the request did not ask for.
    pub fn note_surplus(&mut self) {
        self.has_surplus = true;
    }

    /// Charges the whole hold at the settlement.
    pub fn charge_hold(&mut self) {
        self.charges_hold = true;
    }

    /// Checks whether the response so far exceeds its limits. If the client has already received it (`is_delivered`),
    /// records a checkpoint, which the ledger charges if this process fails before the settlement.
    pub fn follow(&mut self, sequence: &Sequence, is_delivered: bool) -> Result<(), LimitReached> {
        let bytes = sequence.received().bytes;
        let is_held = self.state == MeterState::Open;
        let has_more = is_held && is_delivered && bytes > self.checkpointed_bytes;
        if has_more && self.checkpointed_at.elapsed() >= self.checkpoint_every {
            self.checkpointed_bytes = bytes;
            self.checkpointed_at = Instant::now();
            let (checked, charge) = self.price(sequence);
            let checkpoint = Checkpoint {
                hold: self.hold.clone(),
                credits: charge.credits,
                usage: self.used(sequence, &checked, &charge),
            };
            self.ledger.note(&self.payer.account, checkpoint);
        }
        let limit = self.metered.limits.output_limit + usage::OUTPUT_SLACK_TOKENS;
        if bytes > limit * MAX_BYTES_PER_TOKEN {
            return Err(LimitReached);
        }
        // Neither estimates nor clamped values end a response, only the upstream's reported usage.
        let reported = sequence.usage().map(usage::as_reported);
        match reported.zip(self.attempt.as_ref()) {
            Some((used, attempt)) => {
                let used = self.with_images(used, sequence, &attempt.price);
                let charge = pricing::charge(&attempt.price, &self.factors, &used);
                if charge.credits > self.held {
                    Err(LimitReached)
                } else {
                    Ok(())
                }
            }
            None => Ok(()),
        }
    }

    /// Charges for the usage. After `Ok`, the charge is durable; after an error, the settlement continues in the
    /// background.
    ///
    /// `end` receives the charge and decides the end of the request's idempotency key. If the account cannot pay
    /// everything, the key does not end.
    pub async fn settle(
        &mut self,
        sequence: &Sequence,
        end: impl FnOnce(&BilledUsage) -> Option<Box<EndKey>>,
    ) -> Result<BilledUsage, ApiError> {
        if self.state == MeterState::New {
            // A filter has made the response.
            return Ok(BilledUsage::default());
        }
        let (checked, mut charge) = self.price(sequence);
        if (checked.clamped || self.has_surplus)
            && let Some(attempt) = &self.attempt
        {
            let clamped = self.clamped_nano_usd(sequence, &checked.used, attempt);
            // The provider may bill the rest, and nobody pays it.
            charge.provider_cost_nano_usd = charge.provider_cost_nano_usd.saturating_add(clamped);
            attempt.adapter.counters().clamp();
            let plugin = Plugin::Adapter(attempt.adapter.clone());
            self.metrics.clamp(&plugin, &self.metered.model, clamped);
            tracing::warn!(
                model = self.metered.model,
                request_id = self.metered.request_id,
                slot = %attempt.adapter.code().name,
                digest = %attempt.adapter.code().digest,
                reported = ?sequence.usage().map(usage::as_reported),
                believed = ?checked.used,
                images = sequence.images(),
                has_surplus = self.has_surplus,
                clamped_nano_usd = clamped,
                "the adapter reported implausible usage or more items than requested; weir has clamped them"
            );
        }
        self.state = MeterState::Ended;
        let to_charge = BilledUsage {
            tokens: checked.used.tokens,
            quantity: self.quantity(&checked, sequence),
            credits: charge.credits,
        };
        let settle = Settle {
            hold: self.hold.clone(),
            credits: charge.credits,
            usage: self.used(sequence, &checked, &charge),
            end: end(&to_charge),
        };
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        match self
            .ledger
            .settle(&self.payer.account, settle.clone(), deadline)
            .await
        {
            Ok(settlement) => Ok(self.settled(to_charge, settlement)),
            Err(error @ (LedgerError::Refused(_) | LedgerError::Rejected(_))) => {
                tracing::error!(request_id = self.metered.request_id, %error, "settling a request");
                self.ledger.abandon(&self.payer.account, self.hold.clone());
                Err(ApiError::internal())
            }
            Err(error) => {
                tracing::error!(request_id = self.metered.request_id, %error, "settling a request");
                self.late = Some((settle, to_charge));
                Err(ApiError::new(
                    ErrorCode::SettlementDelayed,
                    "The response is complete, but its charge is not stored yet; the charge follows.",
                )
                .with_no_retry())
            }
        }
    }

    /// Waits for a late settlement, up to a timeout.
    pub async fn settle_late(&mut self) -> Option<BilledUsage> {
        let (settle, to_charge) = self.late.take()?;
        let deadline = Instant::now() + LATE_TIMEOUT;
        // A repeated settlement is applied once, and returns the first one's result.
        let settling = self.ledger.settle(&self.payer.account, settle, deadline);
        match settling.await {
            Ok(settlement) => Some(self.settled(to_charge, settlement)),
            Err(error) => {
                tracing::warn!(request_id = self.metered.request_id, %error, "cannot store a response for its idempotency key");
                None
            }
        }
    }

    fn settled(&self, to_charge: BilledUsage, settlement: Settlement) -> BilledUsage {
        billing::summary_cache::drop_summary_soon(&self.cache, &self.payer.account);
        let tokens = to_charge.tokens;
        // A character or a second of input counts as a token in the rates.
        let units = self.metered.size.units.map_or(0, |units| units.count);
        let used = tokens.input.saturating_add(tokens.output);
        let used = used.saturating_add(units.unsigned_abs());
        self.rates.charge(&self.cache, used);
        if let Some(attempt) = &self.attempt {
            attempt.adapter.counters().charge(settlement.charged);
            if let Some(sampler) = &attempt.sampler {
                sampler.charge(tokens, settlement.charged);
            }
        }
        if settlement.overrun > Credits::ZERO {
            tracing::warn!(
                request_id = self.metered.request_id,
                overrun = %settlement.overrun,
                "a request used more than its account could pay"
            );
        }
        BilledUsage {
            credits: settlement.charged,
            ..to_charge
        }
    }

    /// Releases the hold after a request without delivery. The [written-off](Self::write_off) cost is reported.
    pub async fn release(&mut self) {
        if self.state != MeterState::Open {
            return;
        }
        self.state = MeterState::Ended;
        let cost = (self.written_off_nano_usd > 0).then(|| Box::new(self.unpaid()));
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        let released = self
            .ledger
            .release(&self.payer.account, self.hold.clone(), cost, deadline);
        if let Err(error) = released.await {
            tracing::warn!(request_id = self.metered.request_id, %error, "releasing a hold");
        }
    }

    /// Returns the provider's price, in nano-USD, of the reported usage beyond the believed one.
    fn clamped_nano_usd(&self, sequence: &Sequence, believed: &Billable, attempt: &Attempt) -> i64 {
        let believed = self.with_images(*believed, sequence, &attempt.price);
        let reported = match sequence.usage() {
            Some(reported) => usage::beyond(&believed, reported),
            None => believed,
        };
        let reported = Billable {
            images: believed.images.max(sequence.images()),
            ..reported
        };
        let cost =
            |used| pricing::charge(&attempt.price, &self.factors, used).provider_cost_nano_usd;
        cost(&reported).saturating_sub(cost(&believed)).max(0)
    }

    /// Returns the usage so far, and its price.
    fn price(&self, sequence: &Sequence) -> (CheckedUsage, RequestCharge) {
        if let (true, Some(attempt)) = (self.charges_hold, &self.attempt) {
            return self.whole_hold(&attempt.price);
        }
        let checked = usage::check(
            sequence.usage(),
            &self.metered.size,
            &self.metered.limits,
            sequence.received(),
        );
        let charge_at = |price: &Price| {
            let used = self.with_images(checked.used, sequence, price);
            pricing::charge(price, &self.factors, &used)
        };
        let charge = match (&self.attempt, &self.cached) {
            (Some(attempt), _) => charge_at(&attempt.price),
            (None, Some(cached)) => {
                pricing::charge_without_provider(&charge_at(&cached.price), cached.percent)
            }
            (None, None) => RequestCharge::default(),
        };
        (checked, charge)
    }

    /// Returns the usage that the hold covers, and the hold as its price.
    fn whole_hold(&self, price: &Price) -> (CheckedUsage, RequestCharge) {
        let MeteredRequest {
            size,
            limits,
            images,
            ..
        } = &self.metered;
        let bound = size.bound(limits, *images);
        let used = Billable {
            tokens: TokenCounts {
                input: bound.input_tokens,
                output: bound.output_tokens,
                ..TokenCounts::default()
            },
            input: bound.input,
            images: bound.images,
            searches: bound.searches,
        };
        let charge = RequestCharge {
            credits: self.held,
            ..pricing::charge(price, &self.factors, &used)
        };
        let checked = CheckedUsage {
            used,
            estimated: true,
            clamped: false,
        };
        (checked, charge)
    }

    /// Returns the usage with the number of images to count, and to charge at a price per image.
    fn with_images(&self, used: Billable, sequence: &Sequence, price: &Price) -> Billable {
        let images = match price {
            _ if self.charges_hold => used.images,
            Price::Text { .. } | Price::Units { .. } => sequence.images(),
            Price::Image(_) => {
                let least = u32::from(sequence.any_output());
                sequence.media().max(least).min(self.metered.images)
            }
        };
        Billable { images, ..used }
    }

    /// Returns the price of the response.
    fn price_used(&self) -> Option<&Price> {
        let attempt = self.attempt.as_ref().map(|attempt| &attempt.price);
        attempt.or(self.cached.as_ref().map(|cached| &cached.price))
    }

    /// Returns the usage in the unit of its price.
    fn quantity(&self, checked: &CheckedUsage, sequence: &Sequence) -> Quantity {
        let price = self.price_used();
        price.map_or_else(Quantity::default, |price| {
            let used = self.with_images(checked.used, sequence, price);
            used.quantity(price.unit())
        })
    }

    /// Returns the usage of a charge for the ledger.
    fn used(
        &self,
        sequence: &Sequence,
        checked: &CheckedUsage,
        charge: &RequestCharge,
    ) -> RequestUsage {
        let (provider, adapter_digest) = match (&self.attempt, &self.cached) {
            (Some(attempt), _) => (
                attempt.provider.clone(),
                attempt.adapter.code().digest.to_string(),
            ),
            (None, Some(cached)) => (cached.provider.clone(), cached.adapter_digest.clone()),
            (None, None) => (String::new(), String::new()),
        };
        let unit = self.price_used().map(Price::unit);
        let used = match self.price_used() {
            Some(price) => self.with_images(checked.used, sequence, price),
            None => checked.used,
        };
        let cost = charge.provider_cost_nano_usd;
        let cost = cost.saturating_add(self.written_off_nano_usd);
        let receipt = self.price_used().map(|price| {
            let factors = &self.factors;
            let mut facts = ReceiptFacts::new(price, factors, &used, self.metered.catalog_version);
            facts.reported = sequence.usage().map(usage::reported_figures);
            facts.seen = [self.metered.size.text_bytes, sequence.received().bytes];
            facts.percent = self.cached.as_ref().map(|cached| cached.percent);
            Box::new(facts)
        });
        RequestUsage {
            provider,
            adapter_digest,
            unit,
            counts: UsageCounts::new(&used, unit.unwrap_or_default(), cost),
            latency_ms: self.started.elapsed().as_millis() as u64,
            attempts: self.attempts,
            estimated: checked.estimated,
            receipt,
        }
    }

    /// Returns the usage of a request without delivery: its cost, and no tokens.
    fn unpaid(&self) -> RequestUsage {
        let nothing = (CheckedUsage::default(), RequestCharge::default());
        RequestUsage {
            estimated: true,
            receipt: None,
            ..self.used(&Sequence::new(0), &nothing.0, &nothing.1)
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.state == MeterState::Open {
            tracing::error!(
                request_id = self.metered.request_id,
                "a request was aborted; weir charges its last checkpoint"
            );
            self.ledger.abandon(&self.payer.account, self.hold.clone());
        }
    }
}

/// Returns the client's error for a refused hold.
pub fn refused(error: LedgerError, parts: &InferenceParts) -> ApiError {
    match error {
        LedgerError::Refused(LedgerRefusal::Insufficient {
            required,
            available,
        }) => quota_exceeded(required, available, parts.payments.buying_pages()),
        LedgerError::Refused(LedgerRefusal::OverBudget(exceeded)) => {
            billing::budgets::exceeded(&exceeded, parts.ledger.now())
        }
        LedgerError::Busy => ApiError::new(
            ErrorCode::LedgerBusy,
            "Other nodes hold the needed credits in reserve; retry later.",
        )
        .with_retry_after(Duration::from_secs(1)),
        error => {
            tracing::error!(%error, "cannot reserve credits for a request");
            ApiError::new(
                ErrorCode::LedgerUnavailable,
                "weir could not reserve the credits of the request; retry later.",
            )
            .with_retry_after(Duration::from_secs(1))
        }
    }
}

fn quota_exceeded(required: Credits, available: Credits, pages: BuyingPages) -> ApiError {
    let shortfall = required.saturating_sub(available);
    ApiError::new(
        ErrorCode::QuotaExceeded,
        format!(
            "The request may cost {required} credits, but only {available} are available; reduce the output limit, the number of images or the `max_uses` of tools."
        ),
    )
    .with_no_retry()
    .with_detail("shortfall_credits", shortfall.to_json())
    .with_detail("required_credits", required.to_json())
    .with_detail("available_credits", available.to_json())
    .with_detail(
        "links",
        serde_json::json!({ "upgrade": pages.upgrade, "topup": pages.top_up }),
    )
}
