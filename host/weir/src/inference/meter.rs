//! The meter of one request: what is held for it, what it has used, and what it is charged in the end.
//!
//! Which charge a request ends with:
//!
//! | How it ended | Charge |
//! |---|---|
//! | with a whole answer, an empty one too | what the upstream reported, within the bounds of [`usage::check`] |
//! | stopped midway, since it used more than it may | the same |
//! | the client hung up after the upstream was asked | what was reported until the drain ended, and at least an estimate of what was received |
//! | a stream broke off after some of it was delivered | the same |
//! | the task was torn down | the last checkpoint |
//! | a plain answer was cut by the request's deadline, and is text as far as it came | the same |
//! | anything else: nothing was delivered | nothing |
//!
//! Clients pay the upstream whose answer they get. If weir cuts off an attempt, or an answer fails midway, the provider still
//! asks to be paid. weir books that as a cost without revenue, by estimate unless the upstream has reported its usage.
//!
//! With a price per image it is the images that were delivered, whole, and no more than were asked for. Where there is none
//! of them, but a preview or words, it is one: nothing is made for nothing.
//!
//! An upstream's refusal, an adapter's failure and an answer that broke off before the client had any of it
//! are of the last kind.
//!
//! **Invariant:** a hold that was opened ends: by [`Meter::settle`], by [`Meter::release`], or where the task was
//! torn down by a panic, when the meter is dropped. Where the process ends first, by the ledger's sweep.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use weir_dialects::Billed;
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::price::{Price, PriceFactors};
use weir_ledger::pricing::{self, Bound, Charge};
use weir_ledger::usage::Billable;
use weir_ledger::{
    AccountId, Checkpoint, Claim, Credits, EndKey, HoldId, Ledger, LedgerError, Open, Payer,
    Refusal, RequestUsage, Settle, Settlement, TokenCounts, UsageCounts,
};
use weir_plugins::Component;
use weir_plugins::canary::samples::Sampler;
use weir_storage::Cache;
use weir_storage::clock::Millis;
use weir_storage::ids;

use super::sequence::Sequence;
use super::usage::{self, CheckedUsage, ModelLimits, RequestSize};
use crate::app::App;
use crate::billing;
use weir_payments::BuyingPages;

/// How long a finished answer is kept back until its settlement is durable.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an answer whose settlement is late is kept for its idempotency key, while settling goes on.
const LATE_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a failed request waits until what was held for it is free again.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes of output that a token is believed to have at most.
const MAX_BYTES_PER_TOKEN: u64 = 8;

/// What is known of a request before it is sent.
#[derive(Debug, Clone)]
pub struct Metered {
    /// The request's id.
    pub request_id: String,
    /// The model, as the client named it.
    pub model: String,
    /// How large the input is.
    pub size: RequestSize,
    /// What its model takes.
    pub limits: ModelLimits,
    /// Images that are asked for.
    pub images: u32,
}

/// The upstream that a request is sent to.
#[derive(Clone)]
pub struct Attempt {
    /// The provider's name.
    pub provider: String,
    /// The adapter that translates.
    pub adapter: Arc<Component>,
    /// Where the charge counts, if the adapter's slot has a canary.
    pub sampler: Option<Sampler>,
    /// The model's price there.
    pub price: Price,
}

/// More was used than the request may: the answer ends here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent;

/// The meter of one request.
pub struct Meter {
    ledger: Ledger,
    cache: Cache,
    factors: PriceFactors,
    payer: Payer,
    metered: Metered,
    hold: HoldId,
    held: Credits,
    attempt: Option<Attempt>,
    /// How often upstreams were asked.
    attempts: u32,
    /// Nano-USD that providers ask for attempts which the client does not pay: a cost of the request.
    written_off_nano_usd: i64,
    started: Instant,
    /// A checkpoint is written when so much time has passed and anything has come. By time alone: a fast stream's would
    /// cost more than all else of it.
    checkpoint_every: Duration,
    /// How long is waited for the hold to be durable.
    open_timeout: Duration,
    checkpointed_bytes: u64,
    checkpointed_at: Instant,
    state: State,
    /// The settlement that was asked for, and was not done in time.
    late: Option<(Settle, TokenCounts)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    /// The hold is open, or may be.
    Open,
    Ended,
}

impl Meter {
    /// A meter for a request, before anything is held. Its prices are multiplied with these factors.
    pub fn new(app: &App, payer: Payer, metered: Metered, factors: PriceFactors) -> Self {
        let now = Instant::now();
        let hold = ids::hold_of_request(&metered.request_id).unwrap_or_else(ids::hold_id);
        Self {
            ledger: app.ledger.clone(),
            cache: app.cache.clone(),
            factors,
            payer,
            metered,
            hold: HoldId(hold),
            held: Credits::ZERO,
            attempt: None,
            attempts: 0,
            written_off_nano_usd: 0,
            started: now,
            checkpoint_every: app.config.ledger.checkpoint_every(),
            open_timeout: app.config.stores.hold(),
            checkpointed_bytes: 0,
            checkpointed_at: now,
            state: State::New,
            late: None,
        }
    }

    /// Holds the most that the request can cost at any of these prices, and claims its idempotency key, if it brings one.
    /// When it returns `Ok`, with the moment of it, both are durable.
    pub async fn open<'a>(
        &mut self,
        prices: impl Iterator<Item = &'a Price>,
        claim: Option<Claim>,
    ) -> Result<Millis, LedgerError> {
        let Metered {
            size,
            limits,
            images,
            ..
        } = &self.metered;
        let bound = Bound {
            input_tokens: size.max_input_tokens(limits),
            output_tokens: limits.output_limit + usage::OUTPUT_SLACK_TOKENS,
            images: *images,
        };
        let worst = prices.map(|price| pricing::worst_case(price, &self.factors, &bound));
        self.held = worst.max().unwrap_or(Credits::ZERO);
        let open = Open {
            hold: self.hold.clone(),
            amount: self.held,
            request_id: self.metered.request_id.clone(),
            parent: self.payer.parent.clone(),
            source: self.payer.source,
            source_id: self.payer.source_id.clone(),
            key_id: self.payer.key_id.clone(),
            model: self.metered.model.clone(),
        };
        let deadline = Instant::now() + self.open_timeout;
        let at = self
            .ledger
            .open_claiming(&self.payer.account, open, claim, deadline)
            .await?;
        self.state = State::Open;
        Ok(at)
    }

    /// Who pays.
    pub fn account(&self) -> &AccountId {
        &self.payer.account
    }

    /// An upstream is asked, the same as before or another.
    pub fn count_attempt(&mut self) {
        self.attempts += 1;
    }

    /// The request is sent to another upstream, or once more to the same; what came before does not count.
    pub fn attempt(&mut self, attempt: Attempt) {
        self.attempt = Some(attempt);
        self.checkpointed_bytes = 0;
    }

    /// Adds what the attempt's provider asks for it to what the request costs weir, and to no bill: what it has reported
    /// until it was cut off, or else an estimate. A provider is taken to have made all images that were asked for.
    pub fn write_off(&mut self, sequence: &Sequence) {
        let (checked, mut charge) = self.price(sequence);
        let price = self.attempt.as_ref().map(|attempt| &attempt.price);
        if let Some(price @ Price::Image(_)) = price {
            let (tokens, images) = (checked.tokens, self.metered.images);
            charge = pricing::charge(price, &self.factors, &Billable { tokens, images });
        }
        let cost = charge.provider_cost_nano_usd;
        self.written_off_nano_usd = self.written_off_nano_usd.saturating_add(cost);
    }

    /// Says whether what has come so far is too much. If the client has it already (`is_delivered`), notes a checkpoint, which
    /// is charged if this process does not come to settle.
    pub fn follow(&mut self, sequence: &Sequence, is_delivered: bool) -> Result<(), Spent> {
        let bytes = sequence.received().bytes;
        let has_more = is_delivered && bytes > self.checkpointed_bytes;
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
            return Err(Spent);
        }
        // Estimates stop nobody, nor does what is clamped: only what the upstream itself says was used.
        let reported = sequence.usage().map(usage::as_reported);
        match reported.zip(self.attempt.as_ref()) {
            Some((tokens, attempt)) => {
                let images = self.images(sequence, &attempt.price);
                let used = Billable { tokens, images };
                let charge = pricing::charge(&attempt.price, &self.factors, &used);
                if charge.credits > self.held {
                    Err(Spent)
                } else {
                    Ok(())
                }
            }
            None => Ok(()),
        }
    }

    /// Charges for what was used. When it returns `Ok`, the charge is durable; when it does not, settling goes on.
    ///
    /// `end` is told what is to be charged, and says how the request's idempotency key ends with it. If the account cannot
    /// pay it all, the key does not.
    pub async fn settle(
        &mut self,
        sequence: &Sequence,
        end: impl FnOnce(&Billed) -> Option<Box<EndKey>>,
    ) -> Result<Billed, ApiError> {
        let (checked, charge) = self.price(sequence);
        if checked.clamped
            && let Some(attempt) = &self.attempt
        {
            attempt.adapter.counters().clamp();
            tracing::warn!(
                model = self.metered.model,
                request_id = self.metered.request_id,
                slot = %attempt.adapter.name(),
                digest = %attempt.adapter.digest(),
                reported = ?sequence.usage().map(usage::as_reported),
                believed = ?checked.tokens,
                "reported usage was beyond belief and is clamped"
            );
        }
        self.state = State::Ended;
        let to_charge = Billed {
            tokens: checked.tokens,
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
            Ok(settlement) => Ok(self.settled(checked.tokens, settlement).await),
            Err(error @ (LedgerError::Refused(_) | LedgerError::Rejected(_))) => {
                tracing::error!(request_id = self.metered.request_id, %error, "settling a request");
                self.ledger.abandon(&self.payer.account, self.hold.clone());
                Err(ApiError::internal())
            }
            Err(error) => {
                tracing::error!(request_id = self.metered.request_id, %error, "settling a request");
                self.late = Some((settle, checked.tokens));
                Err(ApiError::new(
                    ErrorCode::SettlementDelayed,
                    "The answer is there, but its charge could not be recorded in time; it will be.",
                )
                .with_no_retry())
            }
        }
    }

    /// Waits for a settlement that was late, no longer than is worth while.
    pub async fn settle_late(&mut self) -> Option<Billed> {
        let (settle, tokens) = self.late.take()?;
        let deadline = Instant::now() + LATE_TIMEOUT;
        // Asked for once more, it is done once, and has the first one's outcome.
        let settling = self.ledger.settle(&self.payer.account, settle, deadline);
        match settling.await {
            Ok(settlement) => Some(self.settled(tokens, settlement).await),
            Err(error) => {
                tracing::warn!(request_id = self.metered.request_id, %error, "an answer is not kept for its key");
                None
            }
        }
    }

    async fn settled(&self, tokens: TokenCounts, settlement: Settlement) -> Billed {
        billing::summary_cache::drop_summary(&self.cache, &self.payer.account).await;
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
        Billed {
            tokens,
            credits: settlement.charged,
        }
    }

    /// Gives back what was held: nothing was delivered. What was [written off](Self::write_off) is reported.
    pub async fn release(&mut self) {
        if self.state != State::Open {
            return;
        }
        self.state = State::Ended;
        let cost = (self.written_off_nano_usd > 0).then(|| Box::new(self.unpaid()));
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        let released = self
            .ledger
            .release(&self.payer.account, self.hold.clone(), cost, deadline);
        if let Err(error) = released.await {
            tracing::warn!(request_id = self.metered.request_id, %error, "releasing a hold");
        }
    }

    /// The usage so far, and its price.
    fn price(&self, sequence: &Sequence) -> (CheckedUsage, Charge) {
        let checked = usage::check(
            sequence.usage(),
            &self.metered.size,
            &self.metered.limits,
            sequence.received(),
        );
        let charge = match &self.attempt {
            Some(attempt) => {
                let images = self.images(sequence, &attempt.price);
                let tokens = checked.tokens;
                pricing::charge(&attempt.price, &self.factors, &Billable { tokens, images })
            }
            None => Charge::default(),
        };
        (checked, charge)
    }

    /// The images that are counted, and at a price per image charged for.
    fn images(&self, sequence: &Sequence, price: &Price) -> u32 {
        match price {
            Price::Text { .. } => sequence.images(),
            Price::Image(_) => {
                let least = u32::from(sequence.any_output());
                sequence.images().max(least).min(self.metered.images)
            }
        }
    }

    /// The usage behind a charge, as the ledger keeps it.
    fn used(&self, sequence: &Sequence, checked: &CheckedUsage, charge: &Charge) -> RequestUsage {
        let (provider, adapter_digest, images) = match &self.attempt {
            Some(attempt) => (
                attempt.provider.clone(),
                attempt.adapter.digest().to_string(),
                self.images(sequence, &attempt.price),
            ),
            None => Default::default(),
        };
        let tokens = checked.tokens;
        let cost = charge.provider_cost_nano_usd;
        let cost = cost.saturating_add(self.written_off_nano_usd);
        RequestUsage {
            provider,
            adapter_digest,
            counts: UsageCounts::new(&Billable { tokens, images }, cost),
            latency_ms: self.started.elapsed().as_millis() as u64,
            attempts: self.attempts,
            estimated: checked.estimated,
        }
    }

    /// The usage of a request of which nothing was delivered: its cost, and no tokens.
    fn unpaid(&self) -> RequestUsage {
        let nothing = (CheckedUsage::default(), Charge::default());
        RequestUsage {
            estimated: true,
            ..self.used(&Sequence::new(0), &nothing.0, &nothing.1)
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.state == State::Open {
            tracing::error!(
                request_id = self.metered.request_id,
                "a request was torn down; it is charged at its last checkpoint"
            );
            self.ledger.abandon(&self.payer.account, self.hold.clone());
        }
    }
}

/// Why nothing could be held, as the client is told.
pub fn refused(error: LedgerError, app: &App) -> ApiError {
    match error {
        LedgerError::Refused(Refusal::Insufficient {
            required,
            available,
        }) => quota_exceeded(required, available, app.payments.buying_pages()),
        LedgerError::Refused(Refusal::OverBudget(exceeded)) => {
            billing::budgets::exceeded(&exceeded, app.ledger.now())
        }
        // Its own is new: it is the one that it was to draw on.
        LedgerError::Refused(Refusal::Ended(_) | Refusal::UnknownHold) => ApiError::new(
            ErrorCode::SwarmHoldEnded,
            "What the swarm had reserved is no longer held.",
        ),
        error => {
            tracing::error!(%error, "holding credits for a request");
            ApiError::new(
                ErrorCode::LedgerUnavailable,
                "The credits for the request could not be held; try again.",
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
            "The request may cost {required} credits, and {available} are available; a lower output limit, \
             or fewer images, needs fewer."
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
