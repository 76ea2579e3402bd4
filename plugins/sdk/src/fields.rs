//! Fields of a request that the vocabulary has no word for.

/// Fields that label a request, or hint at how it may be served. None changes the response. An adapter whose upstream has no
/// such field leaves it out and names it as ignored.
const ADVISORY: [&str; 17] = [
    "user",
    "safety_identifier",
    "metadata",
    // Whether the upstream keeps the response for its own list.
    "store",
    // The upstream's speed and price.
    "service_tier",
    "serviceTier",
    // A guess at the response, which makes it faster.
    "prediction",
    "prompt_cache_key",
    "prompt_cache_retention",
    "cache_control",
    // Earlier turns that the upstream may forget.
    "context_management",
    // Whether the upstream may forget turns that do not fit.
    "truncation",
    "client_metadata",
    "labels",
    // The thresholds of Google's filters.
    "safetySettings",
    // A bound of the calls of tools that the upstream runs.
    "max_tool_calls",
    // The length of the response, for the same content.
    "verbosity",
];

/// Advisory fields of a message, of a part and of a tool.
const ADVISORY_WITHIN: [&str; 6] = [
    "cache_control",
    // The sources of an earlier response.
    "citations",
    // The caller of a tool in an earlier response.
    "caller",
    // Whether a call's arguments come piece by piece.
    "eager_input_streaming",
    // The schema of a function's result, in Google's two forms.
    "response",
    "responseJsonSchema",
];

/// Whether a field of a request is advisory: without it the response is the same.
pub fn is_advisory(field: &str) -> bool {
    ADVISORY.contains(&field)
}

/// Whether a field of a message, a part or a tool is advisory.
pub fn is_advisory_within(field: &str) -> bool {
    ADVISORY_WITHIN.contains(&field)
}
