//! Lines of the ledger: changes of credits other than by requests.

use serde_json::json;
use weir_ledger::account::EntryKind;
use weir_ledger::operation::OperationRequest;
use weir_ledger::store::history::CreditChange;
use weir_ledger::{AccountId, ChangeDirection, LedgerStore};
use weir_storage::Database;

use super::line::{ChargeCategory, ChargeDay, ExportLine};

pub(super) async fn lines(
    database: &Database,
    account: Option<&AccountId>,
    day: ChargeDay,
) -> sqlx::Result<Vec<ExportLine>> {
    let store = LedgerStore::new(database.clone());
    let changes = store.find_changes(account, [day.start, day.end]).await?;
    Ok(changes
        .into_iter()
        .map(|change| line(change, day))
        .collect())
}

fn line(change: CreditChange, day: ChargeDay) -> ExportLine {
    let (category, source, description) = class(&change);
    let credits = change.change.total();
    let mut line = ExportLine {
        description,
        balance_change: credits,
        ..ExportLine::new(day, &change.account.0, category, source)
    };
    if category != ChargeCategory::Purchase {
        // The credits of a purchase are in the line of its payment.
        line.credits = credits;
    }
    if let Some(operation) = &change.operation {
        line.tags = json!({ "reference": operation.id().0 });
    }
    line
}

fn class(change: &CreditChange) -> (ChargeCategory, &'static str, String) {
    use ChargeCategory::{Adjustment, Credit, Purchase};
    let is = |kind: EntryKind| change.kind == kind.name();
    match &change.operation {
        Some(OperationRequest::Adjust(adjust)) => {
            let what = match adjust.way {
                ChangeDirection::Give => "Credits given",
                ChangeDirection::Take => "Credits taken",
            };
            (
                Adjustment,
                "adjustment",
                format!("{what}: {}", adjust.reason),
            )
        }
        Some(OperationRequest::TopUp(top_up)) => match top_up.id.0.split_once(':') {
            Some(("topup", _)) => (Purchase, "topup", "Credits of a top-up".to_owned()),
            Some(("upgrade", _)) => (Purchase, "plan", "Credits of a change of plan".to_owned()),
            Some(("voucher", _)) => (Credit, "voucher", "Credits of a voucher".to_owned()),
            _ => (Credit, "gift", "Credits from the operator".to_owned()),
        },
        Some(OperationRequest::Grant(grant)) => {
            let what = format!("Credits of the {} plan", grant.plan);
            match grant.id.0.starts_with("grant:") {
                true => (Purchase, "plan", what),
                false => (Credit, "gift", format!("{what}, from the operator")),
            }
        }
        Some(OperationRequest::Refund(_)) => (
            Purchase,
            "taken_back",
            "Credits of a refunded payment".to_owned(),
        ),
        None if is(EntryKind::Grant) => {
            (Credit, "free_plan", "Credits of the free plan".to_owned())
        }
        None if is(EntryKind::Lapse) => (Adjustment, "lapse", "Expired credits".to_owned()),
        None => (Adjustment, "owed", "Owed credits".to_owned()),
    }
}
