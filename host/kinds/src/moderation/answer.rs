//! The response: one object with a list of verdicts.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use weir_dialects::openai_chat::json as write;
use weir_dialects::other::PlainWriter;
use weir_dialects::schema::{Described as _, Schemas};
use weir_dialects::written;
use weir_dialects::{AnswerHead, BilledUsage, DataFault};
use weir_ledger::Credits;
use weir_sandbox::adapter::bindings::chat::Event;

/// A plain response under construction.
#[derive(Debug, Clone)]
pub struct Verdicts {
    head: AnswerHead,
    inputs: usize,
    verdicts: Vec<Box<RawValue>>,
    has_surplus: bool,
    fault: Option<&'static str>,
}

/// The part of a verdict that every client reads.
#[derive(Deserialize)]
struct Verdict {
    #[expect(dead_code, reason = "its presence is checked")]
    flagged: bool,
}

written! {
    /// The verdicts on a request's texts.
    struct VerdictsBody<'a> as "ModerationAnswer" {
        /// The response's id.
        id: String,
        /// The requested model.
        model: &'a str,
        /// The verdicts, in the order of the texts.
        results: &'a [Box<RawValue>] = [Is(verdicts)],
        /// The token usage.
        usage: VerdictsUsage,
    }
}

/// The schema of verdicts, which weir passes on: it checks only whether each has `flagged`.
fn verdicts(schemas: &mut Schemas) -> Value {
    schemas.add("ModerationVerdict", json!({
        "type": "object",
        "description": "A verdict on a text. Further fields are the provider's.",
        "properties": {
            "flagged": { "type": "boolean", "description": "Whether the text is harmful." },
            "categories": { "type": "object", "additionalProperties": { "type": "boolean" }, "description": "The kinds of harm, and whether the text has each." },
            "category_scores": { "type": "object", "additionalProperties": { "type": "number" }, "description": "The kinds of harm, and the probability of each." },
        },
        "required": ["flagged"],
    }));
    json!({ "type": "array", "items": { "$ref": "#/components/schemas/ModerationVerdict" } })
}

written! {
    /// The token usage and its charge.
    struct VerdictsUsage as "ModerationUsage" {
        /// The tokens of the texts.
        input_tokens: u64,
        /// The charge of the request, in credits. It is a field of weir.
        credits: Credits,
    }
}

/// Adds the schema of a response.
pub(super) fn describe(schemas: &mut Schemas) {
    VerdictsBody::schema(schemas);
}

impl Verdicts {
    /// Returns a response without verdicts, to a request of this many inputs.
    pub fn new(head: AnswerHead, inputs: usize) -> Self {
        Self {
            head,
            inputs,
            verdicts: Vec::new(),
            has_surplus: false,
            fault: None,
        }
    }
}

impl PlainWriter for Verdicts {
    fn push(&mut self, event: &Event) {
        let Event::Media(media) = event else {
            return;
        };
        if self.verdicts.len() == self.inputs {
            self.has_surplus = true;
            return;
        }
        let is_verdict = serde_json::from_slice::<Verdict>(&media.data).is_ok();
        match serde_json::from_slice(&media.data) {
            Ok(verdict) if is_verdict => self.verdicts.push(verdict),
            _ => self.fault = Some("a verdict that does not say whether the text is harmful"),
        }
    }

    fn check(&self) -> Result<(), DataFault> {
        match self.fault {
            Some(fault) => Err(DataFault::Invalid(fault)),
            None if self.verdicts.len() < self.inputs => {
                Err(DataFault::Invalid("fewer verdicts than inputs"))
            }
            None => Ok(()),
        }
    }

    fn has_surplus(&self) -> bool {
        self.has_surplus
    }

    fn clear(&mut self) {
        self.verdicts.clear();
        self.has_surplus = false;
        self.fault = None;
    }

    fn into_body(self: Box<Self>, billed: &BilledUsage) -> Vec<u8> {
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
        write(&body, &mut out);
        out
    }
}
