//! Fields of a request that the vocabulary has no word for.

/// Fields that label a request, or hint at how it may be served: none changes what is answered. An adapter whose
/// upstream cannot be told one leaves it out and names it as ignored.
const ADVISORY: [&str; 13] = [
    "user",
    "safety_identifier",
    "metadata",
    // Whether the upstream keeps the answer for its own list.
    "store",
    // How soon the answer comes, and at which of the upstream's prices.
    "service_tier",
    // A guess at the answer, which makes it come sooner.
    "prediction",
    "prompt_cache_key",
    "prompt_cache_retention",
    "cache_control",
    // Which earlier turns the upstream may forget.
    "context_management",
    // Whether it may where they do not fit.
    "truncation",
    "client_metadata",
    // How many words are made of the same answer.
    "verbosity",
];

/// The same of a message, of a part of one and of a tool.
const ADVISORY_WITHIN: [&str; 4] = [
    "cache_control",
    // What an earlier answer was drawn from.
    "citations",
    // Who has called a tool in an earlier answer.
    "caller",
    // Whether a call's arguments come piece by piece.
    "eager_input_streaming",
];

/// Whether a field of a request is advisory: without it the answer is the same.
pub fn is_advisory(field: &str) -> bool {
    ADVISORY.contains(&field)
}

/// Whether a field of a message, a part or a tool is.
pub fn is_advisory_within(field: &str) -> bool {
    ADVISORY_WITHIN.contains(&field)
}
