//! Peppers: secrets for hashing API keys, kept outside of the database.
//!
//! Each pepper has a version, which every stored key names. New keys use the first configured pepper; a key under
//! another pepper moves to it at its next use. To replace a pepper without rejecting keys: add the new one behind the
//! old one on every node, then swap them on every node, then drop the old one after the unused keys have expired.
//! Voucher codes use the current pepper, too: without its pepper, a voucher cannot be redeemed.
//!
//! **Invariant:** nodes that share a database share its peppers. The database holds a fingerprint of each, and a node
//! with a different pepper does not start, because it would reject every key.

use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;
use weir_storage::Database;
use weir_storage::database::at_start;
use weir_storage::secrets::SecretKey;
use weir_storage::secrets::SecretSource;

/// The version of the generated pepper of a gateway without configured ones.
const OWN_VERSION: i64 = 1;

/// A pepper in the configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PepperSettings {
    /// Version from 1, never reused for another pepper. Required.
    pub version: u32,
    /// Secret source of at least 32 bytes, such as the output of `openssl rand -hex 32`. Required.
    pub pepper: SecretSource,
}

/// A pepper with its version.
#[derive(Debug, Clone)]
pub struct Pepper {
    /// The version, which every stored key under this pepper names.
    pub version: i64,
    /// The secret itself.
    pub key: SecretKey,
}

/// All peppers that keys may be stored under; at least one.
#[derive(Debug, Clone)]
pub struct Peppers(Vec<Pepper>);

impl Peppers {
    /// Reads the configured peppers, or else the gateway's own, which is created on first use in the file `own`.
    pub fn read(configured: &[PepperSettings], own: &Path) -> anyhow::Result<Self> {
        if configured.is_empty() {
            let key = SecretKey::load_or_create(own)?;
            let version = OWN_VERSION;
            return Ok(Self(vec![Pepper { version, key }]));
        }
        let peppers = configured.iter().map(Pepper::read);
        Ok(Self(peppers.collect::<anyhow::Result<_>>()?))
    }

    /// Compares the peppers with the fingerprints in the database.
    pub async fn compare(&self, database: &Database) -> anyhow::Result<()> {
        for pepper in &self.0 {
            let known = at_start(|| known_fingerprint(database, pepper))
                .await
                .context("comparing the peppers of API keys with the database's")?;
            ensure!(
                known == pepper.fingerprint(),
                "the database's keys use another pepper of version {} than this node: nodes that share a database need the same `api_key_peppers`",
                pepper.version
            );
        }
        Ok(())
    }

    /// Returns peppers for a test, the current one first, without the comparison.
    pub fn of(peppers: impl IntoIterator<Item = (i64, SecretKey)>) -> Self {
        let pepper = |(version, key)| Pepper { version, key };
        Self(peppers.into_iter().map(pepper).collect())
    }

    /// The pepper of new keys.
    pub fn current(&self) -> &Pepper {
        &self.0[0]
    }

    /// All peppers, the current one first.
    pub fn all(&self) -> &[Pepper] {
        &self.0
    }

    /// The pepper with this version.
    pub fn of_version(&self, version: i64) -> Option<&Pepper> {
        self.0.iter().find(|pepper| pepper.version == version)
    }
}

impl Pepper {
    fn read(settings: &PepperSettings) -> anyhow::Result<Self> {
        let version = settings.version;
        let what = format!("the pepper of version {version}");
        Ok(Self {
            version: version.into(),
            key: SecretKey::configured(&settings.pepper, &what)?,
        })
    }

    fn fingerprint(&self) -> Vec<u8> {
        self.key.fingerprint(b"weir api key pepper\0")
    }
}

/// Returns the fingerprint of this version in the database; stores this pepper's if there is none.
async fn known_fingerprint(database: &Database, pepper: &Pepper) -> sqlx::Result<Vec<u8>> {
    let keep = "INSERT INTO api_key_peppers (version, fingerprint) VALUES ($1, $2) \
                ON CONFLICT (version) DO NOTHING";
    let read = "SELECT fingerprint FROM api_key_peppers WHERE version = $1";
    database
        .keep_first(keep, read, pepper.version, pepper.fingerprint())
        .await
}
