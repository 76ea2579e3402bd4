//! OpenAI's Responses API, for models that the option `api` assigns to it.
//!
//! weir stores nothing at the upstream: each request carries the whole conversation, and reasoning in its encrypted form.
//! Items are sent without the upstream's ids, because the upstream would look them up in its storage and fail.

pub(super) mod request;
pub(super) mod response;

pub(super) const PATH: &str = "/responses";

/// The name of this dialect in clients that speak it.
pub(super) const DIALECT: &str = "openai-responses";
