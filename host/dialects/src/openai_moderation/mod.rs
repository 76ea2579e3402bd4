//! OpenAI's Moderations, as a client dialect: harmful content in texts.
//!
//! [`read`] reads a request, and [`Verdicts`] writes the response. weir passes the upstream's verdicts on as they are.

mod answer;
mod request;
#[cfg(test)]
mod tests;

pub use answer::Verdicts;
pub use request::read;

/// The dialect's name in the contract.
const NAME: &str = "openai-moderation";
