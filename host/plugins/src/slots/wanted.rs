//! Reading what the database says that slots are to serve with.

use std::time::Duration;

use serde_json::Value;
use weir_sandbox::Digest;
use weir_sandbox::loading::Arrived;
use weir_storage::Database;

use crate::OperationError;
use crate::signature::Signature;
use crate::store::{self, Wanted};
use crate::trust::{Signed, Trust, TrustError};

/// How long reading what all slots are to serve with may take: a connection that is cut off says nothing.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// An installed component.
pub(super) struct Fetched {
    pub(super) arrived: Arrived,
    /// What it said of itself where it was installed.
    pub(super) description: Value,
    /// Who vouches for it; checked before its bytes were looked at.
    pub(super) signed: Signed,
}

/// A signature as it is kept.
pub(super) fn read_signature(kept: Option<String>) -> Result<Option<Signature>, TrustError> {
    let signature = kept.as_deref().map(Signature::parse).transpose();
    signature.map_err(TrustError::Unreadable)
}

/// What all slots are to serve with.
pub(super) async fn wanted(database: &Database) -> sqlx::Result<Wanted> {
    tokio::time::timeout(READ_TIMEOUT, store::wanted(database))
        .await
        .unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

/// An installed component that somebody vouches for; `None` if there is none, or it is being removed and not all of it is left.
pub(super) async fn fetch(
    database: &Database,
    slot: &str,
    digest: Digest,
    trust: &Trust,
) -> Result<Option<Fetched>, OperationError> {
    let Some(kept) = store::kept(database, slot, digest).await? else {
        return Ok(None);
    };
    let arrived = Arrived::new(kept.bytes.into()).await;
    if arrived.digest != digest {
        return Ok(None);
    }
    let signature = read_signature(kept.signature)?;
    // A text that cannot be read is not what any component says.
    let description = serde_json::from_str(&kept.description).unwrap_or_default();
    Ok(Some(Fetched {
        arrived,
        description,
        signed: trust.check(slot, digest, signature)?,
    }))
}
