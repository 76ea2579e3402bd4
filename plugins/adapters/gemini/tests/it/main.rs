//! The adapter as the host drives it: one exchange from the request to the end of its answer.

mod answers;
mod failures;
mod images;
mod recorded;
mod requests;
