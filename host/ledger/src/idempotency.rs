//! The end of an idempotency key, and the answer that is kept with it.
//!
//! What keys do is [`crate::keys`]'. An answer is stored with the charge for it, in one transaction, so that nobody pays for
//! one that is lost. It is stored sealed, and opens only for the account, the key and the request
//! that it was sealed for, and until it lapses.

use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use weir_storage::clock::Millis;
use weir_storage::sealing::{KeyRing, OpenError, Purpose};

use crate::keys;
use crate::ledger::{Ledger, LedgerError};
use crate::operation::{AccountId, Action, Claim, EndKey, Refusal, Served};

/// Bytes of an answer that is kept to be given again, before it is sealed.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;

/// The same of a request whose answer is to be there whatever happens.
pub const MAX_LONG_ANSWER_BYTES: usize = 16 << 20;

/// How long a finished request waits until its key has ended, too; from then on that goes on without it.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// How long it is tried to end a key whose hold is about to end.
const ENDING_TIMEOUT: Duration = Duration::from_secs(30);

/// The pauses between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A key that a request has claimed. It ends with the settlement of its request ([`ending`](Self::ending)), by
/// [`end`](Self::end), or, where the request was torn down by a
/// panic, when this is dropped.
pub struct ClaimedKey {
    ledger: Ledger,
    sealing_keys: KeyRing,
    max_answer_bytes: usize,
    claimed: Option<Claimed>,
}

struct Claimed {
    account: AccountId,
    claim: Claim,
    request_id: String,
    expires_at: Millis,
}

impl ClaimedKey {
    /// A key that was claimed at this moment.
    pub fn new(
        ledger: Ledger,
        sealing_keys: KeyRing,
        account: AccountId,
        claim: Claim,
        request_id: String,
        at: Millis,
    ) -> Self {
        let claimed = Claimed {
            account,
            claim,
            request_id,
            expires_at: keys::expires_at(at),
        };
        Self {
            ledger,
            sealing_keys,
            max_answer_bytes: MAX_ANSWER_BYTES,
            claimed: Some(claimed),
        }
    }

    /// Has long answers be kept, too.
    #[must_use]
    pub fn keeping_long_answers(mut self) -> Self {
        self.max_answer_bytes = MAX_LONG_ANSWER_BYTES;
        self
    }

    /// What ends it together with its request's hold, with the answer to be given again unless it is too long.
    ///
    /// When that is done, it has [`ended`](Self::ended).
    pub fn ending(&self, answer: Option<&[u8]>) -> Option<Box<EndKey>> {
        let claimed = self.claimed.as_ref()?;
        let answer = answer
            .filter(|answer| answer.len() <= self.max_answer_bytes)
            .map(|answer| claimed.seal(&self.sealing_keys, answer));
        Some(Box::new(EndKey {
            key: claimed.claim.key.clone(),
            request_id: claimed.request_id.clone(),
            answer,
        }))
    }

    /// Notes that it has ended.
    pub fn ended(mut self) {
        self.claimed = None;
    }

    /// Ends it after the request's hold has ended. The answer is kept to be given again unless it is too long.
    ///
    /// When it returns, that is done, or goes on without the request.
    pub async fn end(mut self, answer: Option<Bytes>) {
        if let Some(ending) = self.begin_ending(answer) {
            let _ = tokio::time::timeout(END_TIMEOUT, ending).await;
        }
    }

    /// In a task of its own: what a finished request waits for must not be lost when it waits no longer.
    fn begin_ending(&mut self, answer: Option<Bytes>) -> Option<JoinHandle<()>> {
        let end = self.ending(answer.as_deref())?;
        let account = self.claimed.take()?.account;
        // There is none where a runtime is being torn down; another node, or the next start, sees that it is over.
        let runtime = Handle::try_current().ok()?;
        let ledger = self.ledger.clone();
        Some(runtime.spawn(end_at_last(ledger, account, *end)))
    }
}

impl Drop for ClaimedKey {
    fn drop(&mut self) {
        drop(self.begin_ending(None));
    }
}

impl Claimed {
    fn seal(&self, keys: &KeyRing, answer: &[u8]) -> Vec<u8> {
        let expires_at = self.expires_at.0.to_be_bytes();
        let fields = fields(&self.account, &self.claim, &self.request_id, &expires_at);
        keys.seal(Purpose::IDEMPOTENT_ANSWER, &fields, answer)
    }
}

/// Opens the answer that was kept for an earlier request of this account, with the same key and content.
pub fn open_answer(
    keys: &KeyRing,
    account: &AccountId,
    claim: &Claim,
    served: &Served,
) -> Option<Result<Bytes, OpenError>> {
    let sealed = served.answer.as_deref()?;
    let expires_at = served.expires_at.0.to_be_bytes();
    let fields = fields(account, claim, &served.request_id, &expires_at);
    let opened = keys.unseal(Purpose::IDEMPOTENT_ANSWER, &fields, sealed);
    Some(opened.map(Bytes::from))
}

/// What is authenticated with an answer.
fn fields<'a>(
    account: &'a AccountId,
    claim: &'a Claim,
    request_id: &'a str,
    expires_at: &'a [u8],
) -> [&'a [u8]; 5] {
    [
        account.0.as_bytes(),
        claim.key.as_bytes(),
        &claim.request_digest,
        request_id.as_bytes(),
        expires_at,
    ]
}

async fn end_at_last(ledger: Ledger, account: AccountId, end: EndKey) {
    let deadline = Instant::now() + ENDING_TIMEOUT;
    let mut pause = FIRST_PAUSE;
    loop {
        let action = Action::EndKey(end.clone());
        let outcome = ledger.submit(&account, action, deadline).await;
        match outcome {
            // Its settlement is still on its way.
            Err(LedgerError::Refused(Refusal::StillOpen)) if Instant::now() + pause < deadline => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Ok(_) => return,
            Err(error) => {
                let request_id = &end.request_id;
                tracing::warn!(request_id, %error, "an idempotency key does not end");
                return;
            }
        }
    }
}
