//! The end of an idempotency key, and the response that is stored with it.
//!
//! [`crate::keys`] has the rules of keys. A response is stored together with its charge, in one transaction, so that no
//! account pays for a lost response. It is stored sealed, and opens only for the account, the key and the request for
//! which it was sealed, until the key expires.

use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use weir_storage::clock::Millis;
use weir_storage::sealing::{KeyRing, OpenError, Purpose};

use crate::keys;
use crate::ledger::{Ledger, LedgerError};
use crate::operation::{AccountId, Action, EndKey, IdempotencyClaim, LedgerRefusal, ServedRequest};

/// Maximum bytes of a stored response, before sealing.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Maximum bytes of a stored response for requests that must keep it.
pub const MAX_LONG_ANSWER_BYTES: usize = 16 << 20;

/// Time that a finished request waits for the end of its key; afterwards the end continues in the background.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for retries to end a key whose hold is about to end.
const ENDING_TIMEOUT: Duration = Duration::from_secs(30);

/// The pauses between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A key that a request has claimed. It ends with the settlement of its request ([`ending`](Self::ending)), with
/// [`end`](Self::end) or, after a panic in the request, when it is dropped.
pub struct ClaimedKey {
    ledger: Ledger,
    sealing_keys: KeyRing,
    max_answer_bytes: usize,
    claimed: Option<ClaimEntry>,
}

struct ClaimEntry {
    account: AccountId,
    claim: IdempotencyClaim,
    request_id: String,
    expires_at: Millis,
}

impl ClaimedKey {
    /// Makes the guard of a key that was claimed at this moment.
    pub fn new(
        ledger: Ledger,
        sealing_keys: KeyRing,
        account: AccountId,
        claim: IdempotencyClaim,
        request_id: String,
        at: Millis,
    ) -> Self {
        let claimed = ClaimEntry {
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

    /// Also stores long responses.
    #[must_use]
    pub fn keeping_long_answers(mut self) -> Self {
        self.max_answer_bytes = MAX_LONG_ANSWER_BYTES;
        self
    }

    /// Returns the operation that ends the key together with its request's hold. It stores the response for retries
    /// unless it is too long.
    ///
    /// After it is done, call [`ended`](Self::ended).
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

    /// Marks the key as ended.
    pub fn ended(mut self) {
        self.claimed = None;
    }

    /// Ends the key after its request's hold. Stores the response for retries unless it is too long.
    ///
    /// When this returns, the key has ended, or its end continues in the background.
    pub async fn end(mut self, answer: Option<Bytes>) {
        if let Some(ending) = self.begin_ending(answer) {
            let _ = tokio::time::timeout(END_TIMEOUT, ending).await;
        }
    }

    /// Ends the key in a task of its own: its end must not be lost if the finished request stops waiting.
    fn begin_ending(&mut self, answer: Option<Bytes>) -> Option<JoinHandle<()>> {
        let end = self.ending(answer.as_deref())?;
        let account = self.claimed.take()?.account;
        // No runtime exists during its shutdown; another node, or the next start, ends the key.
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

impl ClaimEntry {
    fn seal(&self, keys: &KeyRing, answer: &[u8]) -> Vec<u8> {
        let expires_at = self.expires_at.0.to_be_bytes();
        let fields = fields(&self.account, &self.claim, &self.request_id, &expires_at);
        keys.seal(Purpose::IDEMPOTENT_ANSWER, &fields, answer)
    }
}

/// Opens the stored response of an earlier request of this account, with the same key and content.
pub fn open_answer(
    keys: &KeyRing,
    account: &AccountId,
    claim: &IdempotencyClaim,
    served: &ServedRequest,
) -> Option<Result<Bytes, OpenError>> {
    let sealed = served.answer.as_deref()?;
    let expires_at = served.expires_at.0.to_be_bytes();
    let fields = fields(account, claim, &served.request_id, &expires_at);
    let opened = keys.unseal(Purpose::IDEMPOTENT_ANSWER, &fields, sealed);
    Some(opened.map(Bytes::from))
}

/// Returns the authenticated data of a response.
fn fields<'a>(
    account: &'a AccountId,
    claim: &'a IdempotencyClaim,
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
            // The hold's settlement is still in the queue.
            Err(LedgerError::Refused(LedgerRefusal::StillOpen))
                if Instant::now() + pause < deadline =>
            {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Ok(_) => return,
            Err(error) => {
                let request_id = &end.request_id;
                tracing::warn!(request_id, %error, "cannot end an idempotency key");
                return;
            }
        }
    }
}
