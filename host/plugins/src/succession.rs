//! Succession of components in a slot: a check that keeps an old version, or another publisher's component, from
//! being slipped in.
//!
//! A slot belongs to the publisher whose component was activated in it last; a bundled component has no publisher,
//! and leaves the owner unchanged. For each publisher, weir remembers the highest version that was installed in a
//! slot, even after its removal. A rollback needs no check, since its target has served before.

use semver::Version;
use weir_storage::database::Transaction;

use super::error::OperationError;
use super::trust::ValidSignature;

/// Permissions that an operator must give explicitly.
#[derive(Debug, Clone, Copy, Default)]
pub struct Permissions {
    /// To accept a lower version than the highest that the publisher has signed for the slot.
    pub downgrade: bool,
    /// To accept a component of another publisher than the slot's.
    pub change_publisher: bool,
}

/// Checks that a component may follow the slot's earlier ones: not below its publisher's highest version, which could
/// be a replay of a faulty version, and not in another publisher's place, unless an operator permits it.
pub(super) async fn check_succession(
    transaction: &mut Transaction,
    slot: &str,
    signed: Option<&ValidSignature>,
    permissions: Permissions,
) -> Result<(), OperationError> {
    let publisher = signed.map(|voucher| &voucher.publisher);
    let owner: Option<Option<String>> =
        sqlx::query_scalar("SELECT publisher FROM slots WHERE slot = $1")
            .bind(slot)
            .fetch_optional(&mut *transaction)
            .await?;
    if let Some(owner) = owner.flatten()
        && Some(&owner) != publisher
        && !permissions.change_publisher
    {
        return Err(OperationError::OtherPublisher {
            owner,
            publisher: publisher.cloned(),
        });
    }
    if let Some(voucher) = signed
        && let Some(highest) = highest_version(transaction, slot, &voucher.publisher).await?
        && is_lower(voucher, &highest)
        && !permissions.downgrade
    {
        return Err(OperationError::Downgrade {
            publisher: voucher.publisher.clone(),
            version: voucher.signature.version.clone(),
            highest,
        });
    }
    Ok(())
}

/// Returns the highest installed version that a publisher has signed for a slot.
async fn highest_version(
    transaction: &mut Transaction,
    slot: &str,
    publisher: &str,
) -> sqlx::Result<Option<String>> {
    sqlx::query_scalar("SELECT version FROM plugin_versions WHERE slot = $1 AND publisher = $2")
        .bind(slot)
        .bind(publisher)
        .fetch_optional(&mut *transaction)
        .await
}

/// Returns whether a version comes before another; a text that is not a version comes before all.
fn is_lower(voucher: &ValidSignature, highest: &str) -> bool {
    let highest = Version::parse(highest);
    highest.is_ok_and(|highest| voucher.signature.version.cmp_precedence(&highest).is_lt())
}

/// Raises the highest version that a publisher has signed for a slot.
pub(super) async fn note_version(
    transaction: &mut Transaction,
    slot: &str,
    voucher: &ValidSignature,
) -> sqlx::Result<()> {
    let publisher = &voucher.publisher;
    let highest = highest_version(transaction, slot, publisher).await?;
    if highest.is_some_and(|highest| is_lower(voucher, &highest)) {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO plugin_versions (slot, publisher, version) VALUES ($1, $2, $3) \
         ON CONFLICT (slot, publisher) DO UPDATE SET version = excluded.version",
    )
    .bind(slot)
    .bind(publisher)
    .bind(voucher.signature.version.to_string())
    .execute(&mut *transaction)
    .await
    .map(drop)
}
