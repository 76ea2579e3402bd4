//! The facts of a request, as one line of JSON: the fields of its log line, with fixed names and types for a table.

use jiff::Timestamp;
use serde::Serialize;

/// A request. Absent facts are `null`, so that each row has all fields.
#[derive(Debug, Serialize)]
pub struct RequestRow<'a> {
    /// The end of the request, in UTC with milliseconds.
    pub time: String,
    /// weir's own unique id of the request.
    pub request_id: &'a str,
    pub client_request_id: Option<&'a str>,
    pub trace_id: Option<String>,
    pub method: &'a str,
    /// The route's pattern.
    pub route: Option<&'a str>,
    /// The status; `null` if the client had disconnected.
    pub status: Option<u16>,
    /// The error's code.
    pub code: Option<&'a str>,
    /// The caller.
    pub user: Option<&'a str>,
    /// The model, by its name in the catalog.
    pub model: Option<&'a str>,
    /// The provider of the last attempt, by its name in the configuration.
    pub upstream: Option<&'a str>,
    /// Attempts at providers.
    pub attempts: u32,
    /// Input tokens, including cached ones.
    pub tokens_input: Option<u64>,
    /// Input tokens that were read from the upstream's cache.
    pub tokens_cache_read: Option<u64>,
    /// Output tokens, including reasoning.
    pub tokens_output: Option<u64>,
    /// The unit of the price.
    pub unit: Option<&'static str>,
    /// The charged usage in this unit.
    pub quantity: Option<i64>,
    /// The charge, in millionths of a credit.
    pub microcredits: Option<i64>,
    /// The reason of a failure, in words for operators.
    pub failure: Option<&'a str>,
    /// The filters' annotations, each as `slot.name=value`.
    pub annotations: &'a [String],
    /// The duration, including the charge.
    pub milliseconds: u64,
}

impl RequestRow<'_> {
    /// Returns a time as rows contain it.
    pub fn format_time(at: Timestamp) -> String {
        at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
    }

    /// Returns the line with its end.
    pub(super) fn line(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = Vec::with_capacity(512);
        serde_json::to_writer(&mut line, self)?;
        line.push(b'\n');
        Ok(line)
    }
}
