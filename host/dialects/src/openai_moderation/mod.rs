//! OpenAI's Moderations, as a client dialect: harmful content in texts.
//!
//! [`read`] reads a request, and [`Verdicts`] writes the response. weir passes the upstream's verdicts on as they are.

mod answer;
mod request;
#[cfg(test)]
mod tests;

use crate::schema::{Described as _, Schemas};
pub use answer::Verdicts;
pub use request::read;

/// Adds the schemas of the dialect.
pub(crate) fn describe(schemas: &mut Schemas) {
    request::ModerationRequestBody::schema(schemas);
    answer::describe(schemas);
}
