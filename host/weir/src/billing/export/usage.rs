//! Lines of usage: one for each day, model, provider and key.

use std::collections::BTreeMap;

use serde_json::json;
use weir_ledger::store::history::DayUsage;
use weir_ledger::{AccountId, Credits, LedgerStore};
use weir_storage::Database;

use super::line::{ChargeCategory, ChargeDay, ExportLine, LineUsage};
use crate::identity::directory::{self, KeyName};

pub(super) async fn lines(
    database: &Database,
    account: Option<&AccountId>,
    day: ChargeDay,
) -> sqlx::Result<Vec<ExportLine>> {
    let store = LedgerStore::new(database.clone());
    let usage = store.find_day_usage(account, day.start).await?;
    let mut hashes: Vec<_> = usage
        .iter()
        .filter_map(|usage| usage.key_hash.clone())
        .collect();
    hashes.sort();
    hashes.dedup();
    let user = account.map(|account| &*account.0);
    let keys = directory::name_keys(database, user, &hashes).await?;
    Ok(usage
        .into_iter()
        .map(|usage| line(usage, &keys, day))
        .collect())
}

fn line(usage: DayUsage, keys: &BTreeMap<String, KeyName>, day: ChargeDay) -> ExportLine {
    let DayUsage {
        account,
        model,
        provider,
        source,
        key_hash,
        sums,
    } = usage;
    let key = key_hash.and_then(|hash| keys.get(&hash));
    let mut tags = json!({ "source": source.name(), "provider": provider });
    if let Some(key) = key {
        tags["key_id"] = json!(key.id);
        tags["key_name"] = json!(key.name);
    }
    let cost = sums.credits.micro();
    ExportLine {
        // A refund of another day's charge.
        is_correction: sums.credits < Credits::ZERO,
        description: format!("{model} by {provider}"),
        effective: cost,
        list: cost,
        credits: sums.credits,
        balance_change: sums.credits.negated(),
        sku: format!("{provider}/{model}"),
        tags,
        usage: Some(LineUsage {
            key: key.map(|key| (key.id.clone(), key.name.clone())),
            model,
            provider,
            requests: sums.requests,
            counts: sums.counts,
        }),
        ..ExportLine::new(day, &account.0, ChargeCategory::Usage, source.name())
    }
}
