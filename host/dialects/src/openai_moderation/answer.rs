//! The response: one object with a list of verdicts.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use weir_ledger::Credits;
use weir_sandbox::adapter::bindings::chat::Event;

use crate::openai_chat::json;
use crate::{AnswerHead, BilledUsage, DataFault};

/// A plain response under construction.
#[derive(Debug, Clone)]
pub struct Verdicts {
    head: AnswerHead,
    inputs: usize,
    verdicts: Vec<Box<RawValue>>,
    fault: Option<&'static str>,
}

/// The part of a verdict that every client reads.
#[derive(Deserialize)]
struct Verdict {
    #[expect(dead_code, reason = "its presence is checked")]
    flagged: bool,
}

#[derive(Serialize)]
struct VerdictsBody<'a> {
    id: String,
    model: &'a str,
    results: &'a [Box<RawValue>],
    usage: VerdictsUsage,
}

/// weir's own field: OpenAI's API has none.
#[derive(Serialize)]
struct VerdictsUsage {
    input_tokens: u64,
    credits: Credits,
}

impl Verdicts {
    /// Returns a response without verdicts, to a request of this many inputs.
    pub fn new(head: AnswerHead, inputs: usize) -> Self {
        Self {
            head,
            inputs,
            verdicts: Vec::new(),
            fault: None,
        }
    }

    /// Adds an event.
    pub fn push(&mut self, event: &Event) {
        let Event::Media(media) = event else {
            return;
        };
        if self.verdicts.len() == self.inputs {
            self.fault = Some("more verdicts than inputs");
            return;
        }
        let is_verdict = serde_json::from_slice::<Verdict>(&media.data).is_ok();
        match serde_json::from_slice(&media.data) {
            Ok(verdict) if is_verdict => self.verdicts.push(verdict),
            _ => self.fault = Some("a verdict that does not say whether the text is harmful"),
        }
    }

    /// Checks that the response has a verdict for each input.
    ///
    /// # Errors
    ///
    /// The fault of the upstream.
    pub fn check(&self) -> Result<(), DataFault> {
        match self.fault {
            Some(fault) => Err(DataFault::Invalid(fault)),
            None if self.verdicts.len() < self.inputs => {
                Err(DataFault::Invalid("fewer verdicts than inputs"))
            }
            None => Ok(()),
        }
    }

    /// Discards an attempt without output.
    pub fn clear(&mut self) {
        self.verdicts.clear();
        self.fault = None;
    }

    /// Returns the object.
    pub fn into_body(self, billed: &BilledUsage) -> Vec<u8> {
        let body = VerdictsBody {
            id: format!("modr-{}", self.head.id),
            model: &self.head.model,
            results: &self.verdicts,
            usage: VerdictsUsage {
                input_tokens: billed.tokens.input,
                credits: billed.credits,
            },
        };
        let mut out = Vec::new();
        json(&body, &mut out);
        out
    }
}
