//! Ended console sessions. An entry outlives the sessions that it ends, and every node reads it.
//!
//! One entry ends one session, and another kind ends all sessions of a person, or of one sign-in at the issuer, that
//! began until a time. Both the session and the end carry the issuer's time, so the clocks of nodes do not matter. A
//! repeated logout token therefore ends no later session.

use sha2::{Digest, Sha256};
use weir_errors::ApiError;
use weir_request::node::Core;
use weir_storage::clock::Millis;
use weir_storage::expiring::ExpiringValues;
use weir_storage::ids::Hex;

use super::errors::sessions_failed;

/// The sessions that an issuer can end together.
#[derive(Debug, Clone, Copy)]
pub(super) enum SessionsOf<'a> {
    /// All sessions of a person.
    Person(&'a str),
    /// The sessions of one sign-in at the issuer (`sid`).
    SignIn(&'a str),
}

/// Ends one session, by its form token. The entry expires with the session.
pub(super) async fn end(core: &Core, form_token: &str, expires_at: Millis) -> Result<(), ApiError> {
    // If the session has ended already, an entry exists.
    let kept = entries(core)
        .replace(
            &name_of_one(form_token),
            None,
            b"",
            expires_at,
            core.clock.now(),
        )
        .await;
    kept.map(drop).map_err(sessions_failed)
}

/// Whether one session has ended.
pub(super) async fn has_ended(core: &Core, form_token: &str) -> Result<bool, ApiError> {
    let found = entries(core)
        .find(&name_of_one(form_token), core.clock.now())
        .await;
    Ok(found.map_err(sessions_failed)?.is_some())
}

/// Ends all sessions that began until a time of the issuer. `expires_at` is the end of the longest of them.
pub(super) async fn end_all(
    core: &Core,
    issuer: &str,
    of: SessionsOf<'_>,
    until: Millis,
    expires_at: Millis,
) -> Result<(), ApiError> {
    let (entries, name, now) = (entries(core), of.name(issuer), core.clock.now());
    loop {
        let found = entries.find(&name, now).await.map_err(sessions_failed)?;
        let before = found.as_ref().map(|found| found.version);
        if found.is_some_and(|found| until <= time_of(&found.value)) {
            return Ok(());
        }
        let value = until.0.to_be_bytes();
        let kept = entries.replace(&name, before, &value, expires_at, now);
        // Another node may have written the entry meanwhile.
        if kept.await.map_err(sessions_failed)? {
            return Ok(());
        }
    }
}

/// Whether a session that began at a time of the issuer has ended together with others.
pub(super) async fn have_all_ended(
    core: &Core,
    issuer: &str,
    of: SessionsOf<'_>,
    began_at: Millis,
) -> Result<bool, ApiError> {
    let found = entries(core).find(&of.name(issuer), core.clock.now()).await;
    let found = found.map_err(sessions_failed)?;
    Ok(found.is_some_and(|found| began_at <= time_of(&found.value)))
}

impl SessionsOf<'_> {
    fn name(self, issuer: &str) -> String {
        let (kind, name) = match self {
            Self::Person(subject) => ("subject", subject),
            Self::SignIn(session) => ("sign-in", session),
        };
        let digest = Sha256::new()
            .chain_update(issuer)
            .chain_update([0])
            .chain_update(name)
            .finalize();
        format!("console-ended-{kind}:{}", Hex(&digest))
    }
}

/// The name of an ended session's entry; the name does not reveal the cookie.
fn name_of_one(form_token: &str) -> String {
    format!("console-ended:{}", Hex(&Sha256::digest(form_token)))
}

/// The time in an entry. An entry of a later version ends all sessions.
fn time_of(value: &[u8]) -> Millis {
    Millis(value.try_into().map_or(i64::MAX, i64::from_be_bytes))
}

fn entries(core: &Core) -> ExpiringValues {
    ExpiringValues::new(core.database.clone(), core.cache.clone())
}
