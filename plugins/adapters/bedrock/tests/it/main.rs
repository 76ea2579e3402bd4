//! The adapter under a host's calls: one exchange from the request to the end of its response.

mod answers;
mod recorded;
mod requests;
