//! Sessions: stored conversations, which clients continue by id instead of sending them again.
//!
//! A request names a session in `session_id`; the first request creates the session. The stored messages precede the
//! request's own messages in the model's input, and count in the bill. After the charge, weir appends the response and
//! the request's messages, without system messages that the session has already. The messages are the client's own, before
//! the filters: the filters see and change the whole conversation again at each turn. A session has at most [`MAX_MESSAGES`]
//! messages and 4 MiB ([`record`]), and expires an hour after its last turn (`sessions.ttl_minutes`).
//!
//! Some dialects continue a response by its id ([`Chain`]). There, each response has its own session, under the
//! response's id: the whole previous conversation, the request, the response. Therefore, a conversation can continue from
//! any of its responses, and a request can refer to parts of them ([`references`]). A conversation of more than 4 MiB
//! cannot be continued: a model that silently misses its beginning would give wrong answers.
//!
//! Sessions are encrypted and bound to their user; equal ids of different users are different sessions. The store never
//! evicts them for lack of space ([`ExpiringValues`]).
//!
//! **Invariant:** a session keeps all concurrent turns, in the order of their ends. **Invariant:** a turn that began
//! before a session was deleted does not restore the session.

mod answer;
mod record;
mod references;
pub mod routes;
pub mod settings;

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use weir_dialects::{Chain, ChatCall, PartReference};
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::AccountId;
use weir_sandbox::adapter::bindings::chat::Event;
use weir_storage::background::{Background, Periodic};
use weir_storage::clock::{Clock, Millis};
use weir_storage::expiring::{ExpiringError, ExpiringValues, ValueVersion};
use weir_storage::sealing::KeyRing;

use self::answer::AnswerRecorder;
pub use self::record::MAX_MESSAGES;
use self::record::{SessionConversation, SessionMessage};

/// The maximum length of a session's id, in bytes.
const MAX_ID_CHARACTERS: usize = 256;

/// The field that names a session.
const FIELD: &str = "session_id";

/// The interval at which weir removes expired sessions.
const PRUNE_EVERY: Duration = Duration::from_secs(600);

/// The maximum tries of appending a turn, if concurrent turns interfere.
const ATTEMPTS: u32 = 64;

/// The timeout of each try if the store is slow; the response waits for it.
const KEEP_TIMEOUT: Duration = Duration::from_secs(3);
const KEEP_PAUSE: Duration = Duration::from_millis(100);

/// The sessions of all users. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sessions {
    values: ExpiringValues,
    keys: KeyRing,
    clock: Clock,
    ttl_ms: i64,
    response_ttl_ms: i64,
}

/// A user's session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionKey {
    account: AccountId,
    id: String,
}

/// The content of a session.
#[derive(Debug)]
struct LoadedSession {
    conversation: SessionConversation,
    version: ValueVersion,
    expires_at: Millis,
}

/// A request within a session.
pub struct SessionTurn {
    sessions: Sessions,
    key: SessionKey,
    /// The session at the start of this turn.
    before: Option<LoadedSession>,
    asked: Vec<SessionMessage>,
    answer: AnswerRecorder,
    /// Whether the turn is a session of its own, which a request continues by the response's id.
    is_chained: bool,
}

impl Sessions {
    /// Returns the sessions of this store, encrypted with these keys.
    pub fn new(
        values: ExpiringValues,
        keys: KeyRing,
        clock: Clock,
        settings: &settings::SessionSettings,
    ) -> Self {
        Self {
            values,
            keys,
            clock,
            ttl_ms: settings.ttl_ms(),
            response_ttl_ms: settings.response_ttl_ms(),
        }
    }

    /// Removes expired sessions forever, if the store does not.
    pub async fn prune_for_ever(self, background: Background) {
        let periodic = Periodic {
            name: "remove expired sessions",
            every: PRUNE_EVERY,
            first_after: PRUNE_EVERY,
        };
        let prune = async || self.values.prune(self.clock.now()).await.map(drop);
        background.repeat(periodic, prune).await;
    }

    async fn find(&self, key: &SessionKey) -> Result<Option<LoadedSession>, ExpiringError> {
        let now = self.clock.now();
        let Some(found) = self.values.find(&key.name(), now).await? else {
            return Ok(None);
        };
        let opened = record::open(&self.keys, &key.account.0, &key.id, &found.value);
        let (conversation, expires_at) = opened.unwrap_or_else(|error| {
            // For example, its sealing key is gone: the session counts as expired, and a new one can replace it.
            tracing::error!(%error, "cannot decrypt a session");
            (SessionConversation::default(), Millis(0))
        });
        Ok(Some(LoadedSession {
            conversation,
            version: found.version,
            expires_at,
        })
        .filter(|held| held.expires_at > now || held.conversation.is_empty()))
    }

    async fn write(
        &self,
        key: &SessionKey,
        before: Option<ValueVersion>,
        conversation: &SessionConversation,
        ttl_ms: i64,
    ) -> Result<bool, ExpiringError> {
        let now = self.clock.now();
        let expires_at = Millis(now.0 + ttl_ms);
        let value = record::seal(
            &self.keys,
            &key.account.0,
            &key.id,
            conversation,
            expires_at,
        );
        self.values
            .replace(&key.name(), before, &value, expires_at, now)
            .await
    }
}

impl SessionKey {
    /// Returns a session's key; the client may choose the id.
    pub fn new(account: AccountId, id: String) -> Result<Self, ApiError> {
        let is_legal =
            (1..=MAX_ID_CHARACTERS).contains(&id.chars().count()) && !id.contains(char::is_control);
        match is_legal {
            true => Ok(Self { account, id }),
            false => Err(malformed()),
        }
    }

    fn name(&self) -> String {
        let AccountId(account) = &self.account;
        // The length prefix keeps different pairs apart.
        format!("session:{}:{account}:{}", account.len(), self.id)
    }
}

impl SessionTurn {
    /// Takes the session out of a request, and puts the stored messages before the request's own. Returns `None` if
    /// weir stores nothing of the conversation. `answer_id` is the response's id without the dialect's prefix.
    pub async fn begin(
        sessions: &Sessions,
        account: &AccountId,
        call: &mut ChatCall,
        answer_id: &str,
    ) -> Result<Option<Self>, ApiError> {
        if let Some(chain) = call.chain.take() {
            return Self::go_on(sessions, account, call, chain, answer_id).await;
        }
        let fields = &mut call.request.extra;
        let Some(index) = fields.iter().position(|(field, _)| field == FIELD) else {
            return Ok(None);
        };
        let (_, json) = fields.remove(index);
        let id = serde_json::from_str::<String>(&json).map_err(|_| malformed())?;
        let key = SessionKey::new(account.clone(), id)?;
        let before = sessions.find(&key).await.map_err(unavailable)?;
        let asked = SessionMessage::of_call(call, sessions.clock.now());
        if let Some(held) = &before {
            held.conversation.precede(call);
        }
        Ok(Some(Self {
            sessions: sessions.clone(),
            key,
            before,
            asked,
            answer: AnswerRecorder::default(),
            is_chained: false,
        }))
    }

    /// Continues an earlier response, in a new session of the next response.
    async fn go_on(
        sessions: &Sessions,
        account: &AccountId,
        call: &mut ChatCall,
        chain: Chain,
        answer_id: &str,
    ) -> Result<Option<Self>, ApiError> {
        let held = match chain.previous {
            None => None,
            Some(id) => Some(find_answer(sessions, account, id, chain.param).await?),
        };
        if held.as_ref().is_some_and(|held| held.conversation.is_cut()) {
            let message = "The conversation of this response exceeds 4 MiB, so that weir does not store it: send its \
                           messages instead.";
            return Err(ApiError::invalid_request(chain.param, message));
        }
        // Instructions for this request alone come first, and are not stored.
        let own = call.request.messages.split_off(chain.leading);
        let leading = std::mem::replace(&mut call.request.messages, own);
        let origins = call.origins.split_off(chain.leading);
        let leading_origins = std::mem::replace(&mut call.origins, origins);
        resolve_references(sessions, account, call, &chain.references).await?;
        let mut asked = match chain.is_kept {
            true => SessionMessage::of_call(call, sessions.clock.now()),
            false => Vec::new(),
        };
        if let Some(held) = held {
            held.conversation.precede(call);
            asked.splice(0..0, held.conversation.into_said());
        }
        call.request.messages.splice(0..0, leading);
        call.origins.splice(0..0, leading_origins);
        if !chain.is_kept {
            return Ok(None);
        }
        let id = format!("{}{answer_id}", chain.prefix);
        Ok(Some(Self {
            sessions: sessions.clone(),
            key: SessionKey::new(account.clone(), id)?,
            before: None,
            asked,
            answer: AnswerRecorder::default(),
            is_chained: true,
        }))
    }

    /// Sets the provider of the following events.
    pub fn answered_by(&mut self, provider: &str) {
        self.answer = AnswerRecorder::of(provider);
    }

    /// Adds an event of the response.
    pub fn event(&mut self, event: &Event) {
        self.answer.event(event);
    }

    /// Appends the request and its response to the session, with retries if the store is slow. If the session cannot be
    /// written, it loses the turn, but the client still gets the response.
    pub async fn keep(mut self) {
        let answer = std::mem::take(&mut self.answer);
        let answer = answer.into_said(self.sessions.clock.now());
        let asked = std::mem::take(&mut self.asked);
        let said = [asked, answer.into_iter().collect()].concat();
        let deadline = Instant::now() + KEEP_TIMEOUT;
        let (mut attempts, mut may_be_kept) = (0, false);
        let id = &self.key.id;
        loop {
            match self.append(&said, attempts == 0, may_be_kept).await {
                Ok(true) => return,
                Ok(false) if attempts == ATTEMPTS => {
                    tracing::warn!(
                        session = id,
                        "dropped a turn: the session has too many concurrent turns"
                    );
                    return;
                }
                Ok(false) => {}
                Err(error) if Instant::now() >= deadline => {
                    tracing::error!(session = id, %error, "cannot store a turn of a session");
                    return;
                }
                // The write may have succeeded nevertheless.
                Err(_) => {
                    may_be_kept = true;
                    tokio::time::sleep(KEEP_PAUSE).await;
                }
            }
            attempts += 1;
        }
    }

    /// Returns whether the session has the turn, or was deleted; `false` if another turn interfered.
    async fn append(
        &self,
        said: &[SessionMessage],
        is_first: bool,
        may_be_kept: bool,
    ) -> Result<bool, ExpiringError> {
        let (sessions, key) = (&self.sessions, &self.key);
        let (version, mut conversation) = match (&self.before, is_first) {
            // The version from the start of the turn, which is current unless another turn came between.
            (Some(held), true) => (Some(held.version), held.conversation.clone()),
            (None, true) => (None, SessionConversation::default()),
            (before, false) => match (sessions.find(key).await?, before) {
                (Some(held), _) if may_be_kept && held.conversation.has(said) => return Ok(true),
                (Some(held), _) => (Some(held.version), held.conversation),
                // The session expired during this turn, which now continues it.
                (None, Some(held)) if sessions.clock.now() >= held.expires_at => {
                    (None, held.conversation.clone())
                }
                // The session was deleted.
                (None, Some(_)) => return Ok(true),
                (None, None) => (None, SessionConversation::default()),
            },
        };
        let ttl_ms = if self.is_chained {
            conversation = SessionConversation::of_response(said.to_vec());
            sessions.response_ttl_ms
        } else {
            conversation.append(said.to_vec());
            sessions.ttl_ms
        };
        sessions.write(key, version, &conversation, ttl_ms).await
    }
}

/// Replaces references in a request by parts of earlier responses.
async fn resolve_references(
    sessions: &Sessions,
    account: &AccountId,
    call: &mut ChatCall,
    references: &[PartReference],
) -> Result<(), ApiError> {
    let mut answers = HashMap::new();
    for PartReference { answer, param, .. } in references {
        if !answers.contains_key(answer) {
            let found = find_answer(sessions, account, answer.clone(), param);
            let held = found.await.map_err(|error| match error.param() {
                Some(_) => not_referable(param),
                None => error,
            })?;
            answers.insert(answer.clone(), held.conversation);
        }
    }
    let answer_of = |id: &str| answers.get(id)?.answer();
    references::resolve(&mut call.request.messages, references, answer_of)
        .map_err(|reference| not_referable(&reference.param))?;
    let messages = std::mem::take(&mut call.request.messages).into_iter();
    let placed = messages.zip(std::mem::take(&mut call.origins));
    let said = placed.filter(|(message, _)| !message.parts.is_empty());
    (call.request.messages, call.origins) = said.unzip();
    Ok(())
}

fn not_referable(param: &str) -> ApiError {
    let message = "No response has this id, or it has expired: send the item itself.";
    ApiError::invalid_request(param, message)
}

/// Returns the session of an earlier response.
async fn find_answer(
    sessions: &Sessions,
    account: &AccountId,
    id: String,
    param: &str,
) -> Result<LoadedSession, ApiError> {
    let key = SessionKey::new(account.clone(), id).ok();
    let held = match &key {
        Some(key) => sessions.find(key).await.map_err(unavailable)?,
        None => None,
    };
    let held = held.filter(|held| !held.conversation.is_empty());
    held.ok_or_else(|| {
        let code = ErrorCode::PreviousResponseNotFound;
        let message = "No response to continue has this id, or it has expired.";
        ApiError::new(code, message).with_param(param)
    })
}

fn malformed() -> ApiError {
    ApiError::invalid_request(
        FIELD,
        format!(
            "A session's id is a text of 1 to {MAX_ID_CHARACTERS} characters without control characters."
        ),
    )
}

fn unavailable(error: ExpiringError) -> ApiError {
    tracing::error!(%error, "reading a session");
    match error {
        ExpiringError::Cache(_) => {
            ApiError::cache_unavailable("weir could not read the session; retry later.")
        }
        ExpiringError::Database(_) => ApiError::store_unavailable(),
    }
}
