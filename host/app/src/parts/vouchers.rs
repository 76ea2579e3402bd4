//! Parts of vouchers.

use axum::extract::FromRef;
use weir_accounts::vouchers::VoucherParts;
use weir_request::node::Core;

use crate::App;

impl FromRef<App> for VoucherParts {
    fn from_ref(app: &App) -> Self {
        Self {
            core: Core::from_ref(app),
            ledger: app.ledger.clone(),
            key_peppers: app.identity.key_peppers.clone(),
        }
    }
}
