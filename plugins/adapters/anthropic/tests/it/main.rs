//! The adapter under a host's calls: one exchange from the request to the end of its response.

mod answers;
mod failures;
mod platforms;
mod recorded;
mod requests;
