//! Sessions: what was said before, kept for clients that name a session instead of sending it again.
//!
//! A request names a session in `session_id`; the first one to do so begins it. What the session holds goes before the
//! request's own messages, to the model and on the bill. When the answer is charged, both are appended: the request's
//! messages, but for system messages that the session has already, and the answer. A session has at most
//! [`MAX_MESSAGES`] messages and 4 MiB ([`record`]), and ends an hour after its last turn (`sessions.ttl_minutes`).
//!
//! In dialects whose answers can be gone on with by their ids ([`Chain`]), each answer has a session of its own, under the
//! answer's id: what the one before it held, the request, the answer. So a conversation can go on from any of its answers,
//! and a request can refer to parts of them ([`references`]).
//!
//! Sessions are sealed, and bound to their user: nobody else's session of the same id has anything to do with it. They are
//! kept where nothing is forgotten for want of room ([`ExpiringValues`]).
//!
//! **Invariant:** turns of one session at the same time are all kept, in the order in which they ended.
//! **Invariant:** a session that was deleted does not come back by a turn that had begun before.

mod answer;
mod record;
mod references;
pub mod routes;
pub mod settings;

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use weir_dialects::{Chain, ChatCall, Reference};
use weir_errors::{ApiError, ErrorCode};

use self::answer::Recorder;
use self::record::{Conversation, Said};
use weir_ledger::AccountId;
use weir_sandbox::adapter::bindings::chat::Event;
use weir_storage::clock::{Clock, Millis};
use weir_storage::expiring::{ExpiringError, ExpiringValues, Version};
use weir_storage::sealing::KeyRing;

/// Messages that a session has at most.
pub const MAX_MESSAGES: usize = 10;

/// The longest id of a session, in bytes.
const MAX_ID_CHARACTERS: usize = 256;

/// The field that names a session.
const FIELD: &str = "session_id";

/// How often sessions that have ended are removed.
const PRUNE_EVERY: Duration = Duration::from_secs(600);

/// How often a turn is appended anew where others got in between.
const ATTEMPTS: u32 = 64;

/// How long it is tried where the store does not answer in time, and how often: the answer waits for it.
const KEEP_TIMEOUT: Duration = Duration::from_secs(3);
const KEEP_PAUSE: Duration = Duration::from_millis(100);

/// The sessions of all users. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sessions {
    values: ExpiringValues,
    keys: KeyRing,
    clock: Clock,
    ttl_ms: i64,
}

/// A user's session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionKey {
    account: AccountId,
    id: String,
}

/// What a session holds.
#[derive(Debug)]
struct LoadedSession {
    conversation: Conversation,
    version: Version,
    expires_at: Millis,
}

/// A request that goes on with a session.
pub struct Turn {
    sessions: Sessions,
    key: SessionKey,
    /// The session as this turn found it.
    before: Option<LoadedSession>,
    asked: Vec<Said>,
    /// The request's own messages, which are its last ones.
    own: usize,
    /// All of its messages, before filters.
    all: usize,
    answer: Recorder,
}

impl Sessions {
    /// Sessions that are kept there, and sealed under these keys.
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
        }
    }

    /// Removes sessions that have ended, for ever, where the store does not do so itself.
    pub async fn prune_for_ever(self) {
        loop {
            tokio::time::sleep(PRUNE_EVERY).await;
            if let Err(error) = self.values.prune(self.clock.now()).await {
                tracing::warn!(%error, "ended sessions are not removed yet");
            }
        }
    }

    async fn find(&self, key: &SessionKey) -> Result<Option<LoadedSession>, ExpiringError> {
        let now = self.clock.now();
        let Some(found) = self.values.find(&key.name(), now).await? else {
            return Ok(None);
        };
        let opened = record::open(&self.keys, &key.account.0, &key.id, &found.value);
        let (conversation, expires_at) = opened.unwrap_or_else(|error| {
            // Such as one that was sealed under a key which is gone: it has ended, and its place can be taken.
            tracing::error!(%error, "a session does not open");
            (Conversation::default(), Millis(0))
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
        before: Option<Version>,
        conversation: &Conversation,
    ) -> Result<bool, ExpiringError> {
        let now = self.clock.now();
        let expires_at = Millis(now.0 + self.ttl_ms);
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
    /// A session by its id, which a client may choose.
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
        // With its length, so that no two are one.
        format!("session:{}:{account}:{}", account.len(), self.id)
    }
}

impl Turn {
    /// Takes out of a request the session that it names, and puts before its messages what that holds. `None` if nothing
    /// is kept of it. `answer_id` is that of its answer, without what a dialect puts before it.
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
        let own = call.request.messages.len();
        if let Some(held) = &before {
            held.conversation.precede(call);
        }
        Ok(Some(Self {
            sessions: sessions.clone(),
            key,
            before,
            asked: Vec::new(),
            own,
            all: call.request.messages.len(),
            answer: Recorder::default(),
        }))
    }

    /// Notes the request's own messages, as filters have left them: the session keeps nothing else of the request.
    ///
    /// If a filter has removed messages, the oldest of the request's own count as removed: no message is kept twice.
    pub fn ask(&mut self, call: &ChatCall) {
        let removed = self.all.saturating_sub(call.request.messages.len());
        let own = self.own.saturating_sub(removed);
        let now = self.sessions.clock.now();
        self.asked.extend(Said::of_call(call, own, now));
    }

    /// Goes on with an earlier answer, in a session of the next answer's own.
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
        // What is for this request alone goes first, and is not kept.
        let own = call.request.messages.split_off(chain.leading);
        let leading = std::mem::replace(&mut call.request.messages, own);
        let origins = call.origins.split_off(chain.leading);
        let leading_origins = std::mem::replace(&mut call.origins, origins);
        resolve_references(sessions, account, call, &chain.references).await?;
        // Most conversations are sent whole each time, and little of one is kept.
        let own = call.request.messages.len().min(MAX_MESSAGES);
        let mut asked = Vec::new();
        if let Some(held) = held {
            held.conversation.precede(call);
            asked = held.conversation.into_said();
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
            own,
            all: call.request.messages.len(),
            answer: Recorder::default(),
        }))
    }

    /// Notes which provider answers from here on.
    pub fn answered_by(&mut self, provider: &str) {
        self.answer = Recorder::of(provider);
    }

    /// Notes a part of the answer.
    pub fn event(&mut self, event: &Event) {
        self.answer.event(event);
    }

    /// Appends the request and its answer to the session, also where its store is too busy at first. A session that cannot
    /// be written loses the turn: the answer is its client's all the same.
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
                        "a session has too many turns at once to keep one"
                    );
                    return;
                }
                Ok(false) => {}
                Err(error) if Instant::now() >= deadline => {
                    tracing::error!(session = id, %error, "a turn of a session is not kept");
                    return;
                }
                // It may have been written all the same.
                Err(_) => {
                    may_be_kept = true;
                    tokio::time::sleep(KEEP_PAUSE).await;
                }
            }
            attempts += 1;
        }
    }

    /// Returns whether the session has it, or was deleted; not if another turn got in between.
    async fn append(
        &self,
        said: &[Said],
        is_first: bool,
        may_be_kept: bool,
    ) -> Result<bool, ExpiringError> {
        let (sessions, key) = (&self.sessions, &self.key);
        let (version, mut conversation) = match (&self.before, is_first) {
            // As it was found, which is as it is unless there was another turn.
            (Some(held), true) => (Some(held.version), held.conversation.clone()),
            (None, true) => (None, Conversation::default()),
            (before, false) => match (sessions.find(key).await?, before) {
                (Some(held), _) if may_be_kept && held.conversation.has(said) => return Ok(true),
                (Some(held), _) => (Some(held.version), held.conversation),
                // It ended while this turn was under way, and goes on with it.
                (None, Some(held)) if sessions.clock.now() >= held.expires_at => {
                    (None, held.conversation.clone())
                }
                // It was deleted.
                (None, Some(_)) => return Ok(true),
                (None, None) => (None, Conversation::default()),
            },
        };
        conversation.append(said.to_vec());
        sessions.write(key, version, &conversation).await
    }
}

/// Puts parts of earlier answers where a request refers to them.
async fn resolve_references(
    sessions: &Sessions,
    account: &AccountId,
    call: &mut ChatCall,
    references: &[Reference],
) -> Result<(), ApiError> {
    let mut answers = HashMap::new();
    for Reference { answer, param, .. } in references {
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
    let message = "There is nothing of this id to refer to, or it is not kept any more: send the item itself.";
    ApiError::invalid_request(param, message)
}

/// The session of an earlier answer.
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
        let message = "There is no answer of this id to go on with, or it is not kept any more.";
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
            ApiError::cache_unavailable("The session cannot be read now; try again.")
        }
        ExpiringError::Database(_) => ApiError::store_unavailable(),
    }
}
