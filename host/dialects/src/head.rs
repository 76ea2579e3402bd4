//! The data of a response besides the model's output: id, time, model and price, or its fault.

use weir_ledger::{Credits, Quantity, TokenCounts};

/// The parts of a response besides the model's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerHead {
    /// The response's id without the dialect's prefix: 32 hexadecimal digits.
    pub id: String,
    /// The time, in seconds since the epoch.
    pub created: i64,
    /// The model's name in the client's request.
    pub model: String,
}

/// The price in a response: charge and usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BilledUsage {
    /// The tokens.
    pub tokens: TokenCounts,
    /// The usage in the unit of its price.
    pub quantity: Quantity,
    /// The charged credits.
    pub credits: Credits,
}

/// The fault of a response of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataFault {
    /// The data are not what the request asked for.
    Invalid(&'static str),
    /// The vectors have another number of dimensions than the request asked for.
    Dimensions,
}
