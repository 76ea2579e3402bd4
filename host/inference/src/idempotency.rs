//! The `Idempotency-Key` header, and the responses to repeated requests.
//!
//! [`weir_ledger::keys`] stores the keys.

use std::time::Duration;

use axum::extract::FromRequestParts;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Method};
use sha2::{Digest, Sha256};
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::idempotency::{ClaimedKey, open_answer};
use weir_ledger::{AccountId, IdempotencyClaim, KeyConflict, MAX_KEY_BYTES, ServedRequest};
use weir_request::context::RequestContext;
use weir_storage::clock::Millis;

use super::InferenceParts;

const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// The header's name in messages.
const HEADER_NAME: &str = "Idempotency-Key";

/// The `Retry-After` of a running request.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// The idempotency key in a request's headers.
pub struct IdempotencyHeader {
    key: Option<String>,
    method: Method,
    path: String,
}

/// A key and its request.
pub struct IdempotentRequest {
    claim: IdempotencyClaim,
    keeps_long_answers: bool,
}

/// The response to a repeated request.
pub enum RepeatResponse {
    /// The first request's response.
    Replay(StoredAnswer),
    /// An error.
    Refuse(ApiError),
}

/// A stored response: a line with the names of ignored advisory fields, which the response's headers had, then the
/// body.
#[derive(Debug, PartialEq, Eq)]
pub struct StoredAnswer {
    /// Its body.
    pub body: Bytes,
    /// The names of ignored advisory fields. No name holds a comma or a line break.
    pub ignored: Vec<String>,
}

impl StoredAnswer {
    /// Serialises the response for the store.
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = self.ignored.join(",").into_bytes();
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.body);
        bytes.into()
    }

    /// Parses the result of [`to_bytes`](Self::to_bytes).
    pub fn from_bytes(mut bytes: Bytes) -> Option<Self> {
        let end = bytes.iter().position(|&byte| byte == b'\n')?;
        let line = bytes.split_to(end + 1);
        let names = str::from_utf8(&line[..end]).ok()?.split(',');
        Some(Self {
            body: bytes,
            ignored: names
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
        })
    }
}

impl<S: Sync> FromRequestParts<S> for IdempotencyHeader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let mut values = parts.headers.get_all(HEADER).iter();
        let key = match (values.next(), values.next()) {
            (None, _) => None,
            (Some(value), None) => Some(read_key(value.as_bytes()).ok_or_else(malformed)?),
            (Some(_), Some(_)) => return Err(malformed()),
        };
        Ok(Self {
            key,
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
        })
    }
}

fn read_key(value: &[u8]) -> Option<String> {
    let is_legal = (1..=MAX_KEY_BYTES).contains(&value.len())
        && value.iter().all(|byte| byte.is_ascii_graphic());
    let text = std::str::from_utf8(value).ok()?;
    is_legal.then(|| text.to_owned())
}

fn malformed() -> ApiError {
    ApiError::invalid_request(
        HEADER_NAME,
        format!("An idempotency key is 1 to {MAX_KEY_BYTES} visible ASCII characters, sent once."),
    )
}

impl IdempotencyHeader {
    /// The key, if there is one.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The key, if there is one, with the request's body.
    pub fn with_body(self, body: &[u8]) -> Option<IdempotentRequest> {
        self.with_pieces(&[body])
    }

    /// Returns the key with a form as the request's body, if there is a key. Clients choose a new boundary for each
    /// request, so the boundary does not count.
    pub fn with_form(self, body: &[u8], boundary: &str) -> Option<IdempotentRequest> {
        self.key.as_ref()?;
        let mut parts = Vec::new();
        let mut start = 0;
        for at in memchr::memmem::find_iter(body, boundary) {
            parts.push(&body[start..at]);
            start = at + boundary.len();
        }
        parts.push(&body[start..]);
        self.with_pieces(&parts)
    }

    fn with_pieces(self, body: &[&[u8]]) -> Option<IdempotentRequest> {
        let key = self.key?;
        let mut digest = Sha256::new();
        // Methods and paths hold no line feed.
        digest.update(self.method.as_str());
        digest.update("\n");
        digest.update(self.path);
        digest.update("\n");
        for piece in body {
            digest.update(piece);
        }
        Some(IdempotentRequest {
            claim: IdempotencyClaim {
                key,
                request_digest: digest.finalize().into(),
            },
            keeps_long_answers: false,
        })
    }
}

impl IdempotentRequest {
    /// The claim to open together with the request's hold.
    pub fn claim(&self) -> &IdempotencyClaim {
        &self.claim
    }

    /// Returns the request as one of a member of an account. The members of an organisation share its keys: a member's
    /// key does not return the response to another member.
    pub fn of_member(mut self, account: &AccountId, member: &AccountId) -> Self {
        if member != account {
            let mut digest = Sha256::new_with_prefix(self.claim.request_digest);
            digest.update(&member.0);
            self.claim.request_digest = digest.finalize().into();
        }
        self
    }

    /// Returns the request with permission to store a long response.
    pub fn keeping_long_answers(self) -> Self {
        Self {
            keeps_long_answers: true,
            ..self
        }
    }

    /// Returns the key after it was claimed at this time.
    pub fn claimed(
        self,
        parts: &InferenceParts,
        account: AccountId,
        context: &RequestContext,
        at: Millis,
    ) -> ClaimedKey {
        let (ledger, sealing_keys) = (parts.ledger.clone(), parts.sealing_keys.clone());
        let request_id = context.id().to_owned();
        let key = ClaimedKey::new(ledger, sealing_keys, account, self.claim, request_id, at);
        match self.keeps_long_answers {
            true => key.keeping_long_answers(),
            false => key,
        }
    }

    /// Returns the response if the key is already taken.
    pub fn instead(
        &self,
        parts: &InferenceParts,
        account: &AccountId,
        taken: KeyConflict,
    ) -> RepeatResponse {
        let served = match taken {
            KeyConflict::OtherRequest => return RepeatResponse::Refuse(reused()),
            KeyConflict::InProgress => return RepeatResponse::Refuse(in_progress()),
            KeyConflict::Served(served) => served,
        };
        match open_answer(&parts.sealing_keys, account, &self.claim, &served) {
            Some(Ok(answer)) => match StoredAnswer::from_bytes(answer) {
                Some(answer) => RepeatResponse::Replay(answer),
                None => RepeatResponse::Refuse(not_kept(&served)),
            },
            None => RepeatResponse::Refuse(not_kept(&served)),
            Some(Err(error)) => {
                tracing::error!(request_id = served.request_id, %error, "cannot decrypt a stored response");
                RepeatResponse::Refuse(not_kept(&served))
            }
        }
    }
}

fn reused() -> ApiError {
    ApiError::new(
        ErrorCode::IdempotencyKeyReused,
        "This idempotency key was used for another request; use a new key for each request.",
    )
    .with_param(HEADER_NAME)
    .with_no_retry()
}

fn in_progress() -> ApiError {
    ApiError::new(
        ErrorCode::IdempotencyInProgress,
        "A request with this idempotency key is running; retry later to get its response.",
    )
    .with_retry_after(RETRY_AFTER)
}

fn not_kept(served: &ServedRequest) -> ApiError {
    ApiError::new(
        ErrorCode::IdempotencyAnswerNotKept,
        "The request with this idempotency key was served, but its response is not stored: it was a stream, too long, or incomplete.",
    )
    .with_no_retry()
    .with_detail("first_request_id", &*served.request_id)
    .with_detail("charged_credits", served.charged.to_json())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(values: &[&str]) -> Result<IdempotencyHeader, ApiError> {
        let mut request = http::Request::post("/chat?a=b");
        for value in values {
            request = request.header(HEADER, *value);
        }
        let (mut parts, ()) = request.body(()).expect("a request").into_parts();
        IdempotencyHeader::from_request_parts(&mut parts, &()).await
    }

    #[test]
    fn an_answer_is_kept_with_what_its_head_says() {
        for ignored in [vec![], vec!["metadata".to_owned(), "user".to_owned()]] {
            let answer = StoredAnswer {
                body: Bytes::from_static(b"{\n}"),
                ignored,
            };
            assert_eq!(StoredAnswer::from_bytes(answer.to_bytes()), Some(answer));
        }
    }

    #[tokio::test]
    async fn a_key_is_sent_once_or_not_at_all() {
        let none = read(&[]).await.expect("it is legal");
        assert!(none.with_body(b"{}").is_none());
        let one = read(&["a"]).await.expect("it is legal").with_body(b"{}");
        assert_eq!(one.expect("a key").claim().key, "a");
        for values in [&["a", "b"], &["a", "a"]] {
            let error = read(values).await.err().expect("it is refused");
            assert_eq!(
                (error.code(), error.param()),
                ("INVALID_REQUEST", Some(HEADER_NAME))
            );
        }
    }
}
