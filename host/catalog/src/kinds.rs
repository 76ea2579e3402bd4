//! The rules of the catalog for kinds of work: output tokens, and units of prices.

use weir_ledger::price::Price;
use weir_sandbox::adapter::WorkKind;

use crate::config::InputUnit;

/// The output of models of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KindOutput {
    /// Text of a chat: its models have a limit.
    Text,
    /// Audio, or the words of audio: models with prices of tokens have a limit.
    Audio,
    /// Data, without tokens.
    Data,
}

/// Returns the output of models of a kind.
pub fn output(kind: WorkKind) -> KindOutput {
    match kind {
        WorkKind::Chat | WorkKind::Images => KindOutput::Text,
        WorkKind::Speech | WorkKind::Transcription => KindOutput::Audio,
        _ => KindOutput::Data,
    }
}

/// Returns the kind of work that an adapter must serve for a model of a kind with this price.
pub fn served(kind: WorkKind, price: &Price) -> WorkKind {
    match (kind, price) {
        (WorkKind::Chat, Price::Image(_)) => WorkKind::Images,
        _ => kind,
    }
}

/// Returns the price of requests of a kind: that of rankings may be per search unit.
pub fn price_of(kind: WorkKind, price: Price) -> Price {
    match kind {
        WorkKind::Rerank => price.in_search_units(),
        _ => price,
    }
}

/// Returns whether a price may count the input of requests of a kind in this unit.
pub fn may_be_counted_in(kind: WorkKind, unit: InputUnit) -> bool {
    match unit {
        InputUnit::Token => true,
        InputUnit::Character => kind == WorkKind::Speech,
        InputUnit::Second => kind == WorkKind::Transcription,
    }
}
