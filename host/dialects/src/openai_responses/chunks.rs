//! The response as server-sent events.
//!
//! **Invariant:** the events of a stream add up to the plain response to the same events.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use weir_sandbox::adapter::bindings::chat::Event;

use super::EchoedFields;
use super::answer::{ResponseStage, object};
use super::items::ItemChange;
use super::output::{Output, OutputWriter, ResponseEnd};
use crate::schema::{Described as _, Schemas, choice};
use crate::{AnswerHead, BilledUsage};

/// A comment, which readers of server-sent events skip.
pub const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// The first events of a stream, written with the first output.
const BEGINNING: [&str; 2] = ["response.created", "response.in_progress"];

/// Writes a stream as server-sent events.
#[derive(Debug)]
pub struct ResponseStream {
    head: AnswerHead,
    echo: EchoedFields,
    output: Output,
    has_begun: bool,
    /// The number of the next event after the first two.
    next: u64,
}

impl ResponseStream {
    /// Returns an empty stream.
    pub fn new(head: AnswerHead, echo: EchoedFields) -> Self {
        Self {
            output: Output::new(&head.id, &echo.names),
            head,
            echo,
            has_begun: false,
            next: BEGINNING.len() as u64,
        }
    }

    /// Sets the provider of the following events.
    pub fn answered_by(&mut self, provider: &str) {
        self.output.answered_by(provider);
    }

    /// Appends the data of an event. [`Self::finish`] writes the end after the settlement.
    pub fn event(&mut self, event: &Event, out: &mut Vec<u8>) {
        let next = &mut self.next;
        if self.has_begun {
            return self.output.follow(event, &mut ResponseEvents { next, out });
        }
        let mut said = Vec::new();
        let mut events = ResponseEvents {
            next,
            out: &mut said,
        };
        self.output.follow(event, &mut events);
        if !said.is_empty() {
            self.start(out);
            out.append(&mut said);
        }
    }

    /// Appends the end, with the complete response.
    pub fn finish(&mut self, billed: &BilledUsage, out: &mut Vec<u8>) {
        self.start(out);
        let kind = match self.output.end() {
            ResponseEnd::Completed => "response.completed",
            ResponseEnd::Incomplete(_) => "response.incomplete",
        };
        let next = &mut { self.next };
        self.write_response(
            kind,
            &ResponseStage::Ended(billed),
            &mut ResponseEvents { next, out },
        );
    }

    /// Appends an error, as the event that SDKs raise and as the failed response, and ends the stream.
    pub fn error(&mut self, body: &Value, out: &mut Vec<u8>) {
        self.start(out);
        let error = &body["error"];
        let event = ErrorEvent {
            code: &error["code"],
            message: &error["message"],
            param: &error["param"],
            error,
        };
        self.output.cut();
        let next = &mut { self.next };
        let mut events = ResponseEvents { next, out };
        events.event("error", &event);
        self.write_response(
            "response.failed",
            &ResponseStage::Failed(error),
            &mut events,
        );
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let mut number = 0;
        for kind in BEGINNING {
            let next = &mut number;
            self.write_response(
                kind,
                &ResponseStage::InProgress,
                &mut ResponseEvents { next, out },
            );
        }
    }

    fn write_response(
        &self,
        kind: &'static str,
        stage: &ResponseStage<'_>,
        events: &mut ResponseEvents<'_>,
    ) {
        let response = object(&self.head, &self.echo, &self.output, stage);
        let response = RawValue::from_string(response).expect("it was written as JSON");
        events.event(kind, &ResponseEvent { response });
    }
}

/// The numbered events of a stream.
struct ResponseEvents<'a> {
    next: &'a mut u64,
    out: &'a mut Vec<u8>,
}

impl ResponseEvents<'_> {
    fn event(&mut self, kind: &'static str, fields: &impl Serialize) {
        let event = NumberedEvent {
            kind,
            sequence_number: *self.next,
            fields,
        };
        *self.next += 1;
        self.out.extend_from_slice(b"event: ");
        self.out.extend_from_slice(kind.as_bytes());
        self.out.extend_from_slice(b"\ndata: ");
        serde_json::to_writer(&mut *self.out, &event)
            .expect("plain structs serialize, and a Vec takes every byte");
        self.out.extend_from_slice(b"\n\n");
    }
}

impl OutputWriter for ResponseEvents<'_> {
    fn write(&mut self, kind: &'static str, change: &ItemChange<'_>) {
        self.event(kind, change);
    }
}

/// The events with the response.
const OF_RESPONSE: [&str; 5] = [
    "response.created",
    "response.in_progress",
    "response.completed",
    "response.incomplete",
    "response.failed",
];

/// The events about a change.
const OF_CHANGE: [&str; 17] = [
    "response.output_item.added",
    "response.output_item.done",
    "response.content_part.added",
    "response.content_part.done",
    "response.output_text.delta",
    "response.output_text.done",
    "response.output_text.annotation.added",
    "response.refusal.delta",
    "response.refusal.done",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.custom_tool_call_input.delta",
    "response.custom_tool_call_input.done",
];

/// The schema of an event.
pub(super) fn describe(schemas: &mut Schemas) {
    let change = ItemChange::schema(schemas);
    let event = |types: &[&str], meaning: &str| {
        json!({
            "type": "object",
            "description": meaning,
            "properties": {
                "type": { "type": "string", "enum": types, "description": "The kind of the event." },
                "sequence_number": { "type": "integer", "description": "The number of the event, from 0." },
            },
            "required": ["type", "sequence_number"],
        })
    };
    let mut of_response = event(
        &OF_RESPONSE,
        "An event with the response: at its beginning without output, at its end complete.",
    );
    of_response["properties"]["response"] =
        json!({ "$ref": "#/components/schemas/ResponsesAnswer", "description": "The response." });
    of_response["required"] = json!(["type", "sequence_number", "response"]);
    schemas.add("ResponsesResponseEvent", of_response);
    let mut of_change = event(
        &OF_CHANGE,
        "An event about a change of an item. Its type determines its fields.",
    );
    schemas.flatten(&mut of_change, &change);
    schemas.add("ResponsesItemEvent", of_change);
    let mut of_error = event(
        &["error"],
        "The error that ends a stream; `response.failed` follows.",
    );
    let nullable = |meaning: &str| json!({ "type": ["string", "null"], "description": meaning });
    of_error["properties"]["code"] = nullable("OpenAI's code of the error, if it has one.");
    of_error["properties"]["message"] =
        json!({ "type": "string", "description": "The message, for people." });
    of_error["properties"]["param"] = nullable("The path of the invalid field.");
    of_error["properties"]["error"] =
        json!({ "type": "object", "description": "The error, as outside of a stream." });
    of_error["required"] = json!([
        "type",
        "sequence_number",
        "code",
        "message",
        "param",
        "error"
    ]);
    schemas.add("ResponsesErrorEvent", of_error);
    let mut mapping = Map::new();
    let mut choices = Vec::new();
    for (name, types) in [
        ("ResponsesResponseEvent", OF_RESPONSE.as_slice()),
        ("ResponsesItemEvent", OF_CHANGE.as_slice()),
        ("ResponsesErrorEvent", &["error"]),
    ] {
        let place = format!("#/components/schemas/{name}");
        choices.push(json!({ "$ref": place }));
        mapping.extend(
            types
                .iter()
                .map(|one| ((*one).to_owned(), place.clone().into())),
        );
    }
    let docs = ["An event of a stream in Responses."];
    schemas.add(
        "ResponsesEvent",
        choice(&docs, "type", (choices, mapping), &[]),
    );
}

#[derive(Debug, Serialize)]
struct NumberedEvent<'a, T> {
    #[serde(rename = "type")]
    kind: &'static str,
    sequence_number: u64,
    #[serde(flatten)]
    fields: &'a T,
}

#[derive(Debug, Serialize)]
struct ResponseEvent {
    response: Box<RawValue>,
}

/// An error within a stream. OpenAI's documentation puts the fields beside the type, its servers into an object:
/// clients read both.
#[derive(Debug, Serialize)]
struct ErrorEvent<'a> {
    code: &'a Value,
    message: &'a Value,
    param: &'a Value,
    error: &'a Value,
}
