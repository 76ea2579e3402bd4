//! Reads of the wanted state of slots from the database.

use std::time::Duration;

use serde_json::Value;
use weir_sandbox::Digest;
use weir_sandbox::loading::UploadedComponent;
use weir_storage::Database;

use crate::OperationError;
use crate::signature::Signature;
use crate::store::{self, DesiredSlots};
use crate::trust::{ComponentSigner, Trust, TrustError};

/// Time limit for the read of all slots' wanted state: a lost connection reports no error.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct FetchedComponent {
    pub(super) arrived: UploadedComponent,
    /// The description at its installation.
    pub(super) description: Value,
    /// The publisher that vouches for it; checked before any use of its bytes.
    pub(super) signed: ComponentSigner,
}

/// Parses a stored signature.
pub(super) fn read_signature(kept: Option<String>) -> Result<Option<Signature>, TrustError> {
    let signature = kept.as_deref().map(Signature::parse).transpose();
    signature.map_err(TrustError::Unreadable)
}

/// Reads the wanted state of all slots.
pub(super) async fn wanted(database: &Database) -> sqlx::Result<DesiredSlots> {
    tokio::time::timeout(READ_TIMEOUT, store::wanted(database))
        .await
        .unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

/// Reads an installed component and checks its publisher; `None` if it is not installed, or partly removed.
pub(super) async fn fetch(
    database: &Database,
    slot: &str,
    digest: Digest,
    trust: &Trust,
) -> Result<Option<FetchedComponent>, OperationError> {
    let Some(kept) = store::kept(database, slot, digest).await? else {
        return Ok(None);
    };
    let arrived = UploadedComponent::new(kept.bytes.into()).await;
    if arrived.digest != digest {
        return Ok(None);
    }
    let signature = read_signature(kept.signature)?;
    // An unreadable text equals no component's description.
    let description = serde_json::from_str(&kept.description).unwrap_or_default();
    Ok(Some(FetchedComponent {
        arrived,
        description,
        signed: trust.check(slot, digest, signature)?,
    }))
}
