//! Visits of the local processor's pages: show a page, or carry out a button of its forms.

use weir_ledger::Plan;

use super::customers::SessionStatus;
use super::pages::{self, LocalPage};
use super::{LocalProcessor, Management, PaymentButton};
use crate::terms::ProcessorError;

/// The redirect after a button.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redirect {
    /// To a page of the local processor, by its path.
    Own(String),
    /// To a configured URL.
    Configured(String),
}

/// The style sheet of all pages.
pub fn style_sheet() -> &'static str {
    pages::STYLE
}

/// The page after a checkout or a portal if no URL is configured: `paid`, `cancelled` or `done`.
pub fn landing_page(name: &str) -> Option<LocalPage> {
    pages::landing(name)
}

impl LocalProcessor {
    /// The page of a checkout; `None` if there is none of this id.
    pub async fn checkout_page(&self, id: &str) -> Result<Option<LocalPage>, ProcessorError> {
        let session = self.session(id).await?;
        Ok(session.map(|session| pages::checkout(id, &session, self.books.now())))
    }

    /// Carries out `pay`, `decline` or `cancel` on a checkout page. Returns `None` if there is no such page or button.
    pub async fn act_on_checkout(
        &self,
        id: &str,
        act: &str,
    ) -> Result<Option<Redirect>, ProcessorError> {
        let Some(session) = self.session(id).await? else {
            return Ok(None);
        };
        let payment = match act {
            "pay" => PaymentButton::Good,
            "decline" => PaymentButton::Declined,
            "cancel" => return Ok(Some(Redirect::Configured(session.cancel_url))),
            _ => return Ok(None),
        };
        self.pay(id, payment).await?;
        let session = self.session(id).await?;
        Ok(session.map(|session| match session.status {
            SessionStatus::Complete => Redirect::Configured(session.success_url),
            // The checkout page says why nothing is paid.
            _ => own("checkout", id),
        }))
    }

    /// The page on which a customer manages a plan; `None` if there is none of this id, or it has expired.
    pub async fn portal_page(&self, id: &str) -> Result<Option<LocalPage>, ProcessorError> {
        let portal = self.portal(id).await?;
        let now = self.books.now();
        Ok(portal.map(|(_, book, back)| pages::portal(id, &book, &self.settings, &back, now)))
    }

    /// Carries out `guru`, `pro`, `cancel`, `resume` or `end` on such a page. Returns `None` if there is no such page or
    /// button.
    pub async fn act_on_portal(
        &self,
        id: &str,
        act: &str,
    ) -> Result<Option<Redirect>, ProcessorError> {
        let Some((customer_id, _, _)) = self.portal(id).await? else {
            return Ok(None);
        };
        let act = match act {
            "guru" => Management::Switch(Plan::Guru),
            "pro" => Management::Switch(Plan::Pro),
            "cancel" => Management::Cancel,
            "resume" => Management::Resume,
            "end" => Management::End,
            _ => return Ok(None),
        };
        self.manage(&customer_id, act).await?;
        Ok(Some(own("portal", id)))
    }
}

fn own(kind: &str, id: &str) -> Redirect {
    Redirect::Own(format!("/dev/payments/{kind}/{id}"))
}
