//! `/docs`: the API's document as a page for people.
//!
//! The page is generated from the OpenAPI document ([`crate::openapi`]). Existing viewers load a megabyte of script,
//! and most of them use inline styles, which a strict policy forbids. This page works without either.

use std::sync::LazyLock;

use askama::Template;
use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use serde_json::{Map, Value};
use weir_errors::ApiError;

use super::format;
use super::frame::Frame;
use crate::app::App;
use crate::openapi::{self, ApiListener};

#[derive(Template)]
#[template(path = "console/docs.html")]
struct Docs {
    frame: Frame,
    intro: String,
    proofs: Vec<DocsProof>,
    groups: Vec<Group>,
    schemas: Vec<DocsSchema>,
}

/// An authentication method.
struct DocsProof {
    name: String,
    sent_in: String,
    text: String,
}

/// The operations of a tag.
struct Group {
    text: String,
    operations: Vec<DocsOperation>,
}

struct DocsOperation {
    id: String,
    method: String,
    path: String,
    text: String,
    proofs: Vec<String>,
    parameters: Vec<Field>,
    bodies: Vec<Media>,
    answers: Vec<DocsResponse>,
}

/// The media type and schema of a body or a response.
struct Media {
    kind: String,
    shape: Shape,
    example: Option<String>,
}

struct DocsResponse {
    status: String,
    text: String,
    shape: Option<Shape>,
    next: Vec<String>,
}

/// A parameter, or a field of an object.
struct Field {
    name: String,
    place: String,
    shape: Shape,
    is_required: bool,
    text: String,
}

struct DocsSchema {
    name: String,
    text: String,
    shape: Shape,
    fields: Vec<Field>,
}

/// A type in words, with links to the schemas that it names.
#[derive(Default)]
struct Shape(Vec<DocsPiece>);

struct DocsPiece {
    text: String,
    is_schema: bool,
}

/// `GET /docs`
pub(super) async fn show_docs(State(app): State<App>) -> Result<Response, ApiError> {
    static PAGES: [LazyLock<Option<String>>; 2] = [
        LazyLock::new(|| render(ApiListener::Only)),
        LazyLock::new(|| render(ApiListener::Public)),
    ];
    let page = PAGES[usize::from(app.config.internal_listen.is_some())].as_deref();
    Ok(Html(page.ok_or_else(ApiError::internal)?).into_response())
}

fn render(surface: ApiListener) -> Option<String> {
    let document = serde_json::from_slice(&openapi::document(surface).text).ok()?;
    Docs::of(&document).render().ok()
}

impl Docs {
    fn of(document: &Value) -> Self {
        let tags = document["tags"].as_array().into_iter().flatten();
        let groups = tags.map(|tag| Group {
            text: text(&tag["description"]),
            operations: operations(document, &tag["name"]),
        });
        let schemas = entries(&document["components"]["schemas"]);
        let proofs = entries(&document["components"]["securitySchemes"]);
        Self {
            frame: Frame::bare("Documentation of the API"),
            intro: text(&document["info"]["description"]),
            proofs: proofs
                .map(|(name, proof)| DocsProof::of(name, proof))
                .collect(),
            groups: groups.collect(),
            schemas: schemas
                .map(|(name, schema)| DocsSchema::of(name, schema))
                .collect(),
        }
    }
}

impl DocsProof {
    fn of(name: &str, proof: &Value) -> Self {
        let sent_in = match proof["type"].as_str() {
            Some("http") => "Authorization: Bearer …".to_owned(),
            _ => format!("{}: …", text(&proof["name"])),
        };
        Self {
            name: name.to_owned(),
            sent_in,
            text: text(&proof["description"]),
        }
    }
}

fn operations(document: &Value, tag: &Value) -> Vec<DocsOperation> {
    let paths = entries(&document["paths"]);
    let all = paths.flat_map(|(path, methods)| {
        entries(methods).map(move |(method, operation)| (path, method, operation))
    });
    all.filter(|(_, _, operation)| operation["tags"][0] == *tag)
        .map(|(path, method, operation)| DocsOperation::of(path, method, operation))
        .collect()
}

impl DocsOperation {
    fn of(path: &str, method: &str, operation: &Value) -> Self {
        let ways = operation["security"].as_array().into_iter().flatten();
        let proofs = ways.map(|way| {
            let names: Vec<_> = entries(way).map(|(name, _)| name).collect();
            names.join(" with ")
        });
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let bodies = entries(&operation["requestBody"]["content"]);
        Self {
            id: text(&operation["operationId"]),
            method: method.to_uppercase(),
            path: path.to_owned(),
            text: text(&operation["description"]),
            proofs: proofs.filter(|proof| !proof.is_empty()).collect(),
            parameters: parameters
                .map(|parameter| Field {
                    name: text(&parameter["name"]),
                    place: text(&parameter["in"]),
                    shape: Shape::of(&parameter["schema"]),
                    is_required: parameter["required"] == true,
                    text: text(&parameter["description"]),
                })
                .collect(),
            bodies: bodies.map(|(kind, media)| Media::of(kind, media)).collect(),
            answers: entries(&operation["responses"])
                .map(|(status, answer)| DocsResponse::of(status, answer))
                .collect(),
        }
    }
}

impl Media {
    fn of(kind: &str, media: &Value) -> Self {
        let first = entries(&media["examples"]).next();
        let example = match &media["example"] {
            Value::Null => first.map(|(_, example)| &example["value"]),
            example => Some(example),
        };
        Self {
            kind: kind.to_owned(),
            shape: Shape::of(&media["schema"]),
            example: example.and_then(|example| serde_json::to_string_pretty(example).ok()),
        }
    }
}

impl DocsResponse {
    fn of(status: &str, answer: &Value) -> Self {
        let content = entries(&answer["content"]).next();
        Self {
            status: status.to_owned(),
            text: text(&answer["description"]),
            shape: content.map(|(_, media)| Shape::of(&media["schema"])),
            next: entries(&answer["links"])
                .map(|(_, link)| text(&link["operationId"]))
                .collect(),
        }
    }
}

impl DocsSchema {
    fn of(name: &str, schema: &Value) -> Self {
        let required = schema["required"].as_array();
        let fields = entries(&schema["properties"]).map(|(name, field)| Field {
            name: name.to_owned(),
            place: String::new(),
            shape: Shape::of(field),
            is_required: required.is_some_and(|names| names.iter().any(|one| one == name)),
            text: text(&field["description"]),
        });
        Self {
            name: name.to_owned(),
            text: text(&schema["description"]),
            shape: Shape::of(schema),
            fields: fields.collect(),
        }
    }
}

impl Shape {
    fn of(schema: &Value) -> Self {
        let mut shape = Self::default();
        shape.push(schema);
        shape
    }

    fn say(&mut self, text: impl Into<String>) {
        self.0.push(DocsPiece {
            text: text.into(),
            is_schema: false,
        });
    }

    fn push(&mut self, schema: &Value) {
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.rsplit('/').next().unwrap_or_default();
            self.0.push(DocsPiece {
                text: name.to_owned(),
                is_schema: true,
            });
            return;
        }
        let choices = ["oneOf", "anyOf"]
            .iter()
            .find_map(|name| schema[*name].as_array());
        if let Some(choices) = choices {
            return self.push_all(choices, " or ");
        }
        if let Some(parts) = schema["allOf"].as_array() {
            return self.push_all(parts, " and ");
        }
        if let Some(values) = schema["enum"].as_array() {
            let values: Vec<_> = values.iter().map(Value::to_string).collect();
            return self.say(values.join(" | "));
        }
        let kinds: Vec<_> = match &schema["type"] {
            Value::String(kind) => vec![kind.as_str()],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => vec!["anything"],
        };
        for (index, kind) in kinds.iter().enumerate() {
            if index > 0 {
                self.say(" or ");
            }
            match *kind {
                "array" if schema["items"].is_object() => {
                    self.say("array of ");
                    self.push(&schema["items"]);
                }
                kind => self.say(kind),
            }
        }
        let bounds = [
            "minimum",
            "exclusiveMinimum",
            "maximum",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "pattern",
            "default",
        ];
        let bounds: Vec<_> = bounds
            .into_iter()
            .filter(|name| !schema[*name].is_null())
            .map(|name| format!("{name} {}", schema[name]))
            .collect();
        if !bounds.is_empty() {
            self.say(format!(", {}", bounds.join(", ")));
        }
    }

    fn push_all(&mut self, parts: &[Value], between: &str) {
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                self.say(between);
            }
            self.push(part);
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let entries = value.as_object().into_iter().flat_map(Map::iter);
    entries.map(|(name, value)| (name.as_str(), value))
}
