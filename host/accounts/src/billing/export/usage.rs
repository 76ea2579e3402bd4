//! Lines of usage: one for each day, model, provider and key.

use std::collections::BTreeMap;

use serde_json::json;
use weir_identity::directory::{self, KeyName};
use weir_ledger::store::history::DayPart;
use weir_ledger::usage::UsageReading;
use weir_ledger::{AccountId, Credits, LedgerStore, UsageSums};
use weir_storage::Database;

use super::line::{ChargeCategory, ChargeDay, ExportLine, LineUsage};

pub(super) async fn lines(
    database: &Database,
    account: Option<&AccountId>,
    day: ChargeDay,
) -> sqlx::Result<Vec<ExportLine>> {
    let store = LedgerStore::new(database.clone());
    let since = store.find_units_since().await?;
    let reading = match since.is_some_and(|since| day.period.end <= since) {
        true => UsageReading::Unitless,
        false => UsageReading::ByUnit,
    };
    let usage = store.find_day_usage(account, day.start, reading).await?;
    let mut hashes: Vec<_> = usage
        .iter()
        .filter_map(|(part, _)| part.key_hash.clone())
        .collect();
    hashes.sort();
    hashes.dedup();
    let user = account.map(|account| &*account.0);
    let keys = directory::name_keys(database, user, &hashes).await?;
    Ok(usage
        .into_iter()
        .map(|(part, sums)| line(part, &sums, &keys, day))
        .collect())
}

fn line(
    part: DayPart,
    sums: &UsageSums,
    keys: &BTreeMap<String, KeyName>,
    day: ChargeDay,
) -> ExportLine {
    let DayPart {
        account,
        model,
        provider,
        source,
        key_hash,
    } = part;
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
            quantity: sums.quantity,
        }),
        ..ExportLine::new(day, &account.0, ChargeCategory::Usage, source.name())
    }
}
