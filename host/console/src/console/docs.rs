//! `/docs`: the API's document as a page for people.
//!
//! The page is generated from the OpenAPI document ([`crate::openapi`]). Existing viewers load a megabyte of script,
//! and most of them use inline styles, which a strict policy forbids. This page can be read without either; a small
//! script searches it and sends a reader's requests.

use std::sync::{Arc, LazyLock};

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};
use weir_app::App;
use weir_errors::ApiError;
use weir_identity::endpoints::{Access, Endpoints, get};

use super::format;
use super::frame::Frame;
use super::respond::page;
use super::snippets::{self, Snippet};
use crate::openapi::OpenApiDocument;

/// The examples at the beginning: curl, and the libraries of OpenAI and Anthropic.
const EXAMPLES: usize = 3;

#[derive(Template)]
#[template(path = "console/docs.html")]
struct DocsPage<'a> {
    frame: Frame,
    /// The gateway's address, as the browser knows it.
    base: &'a str,
    snippets: Vec<Snippet>,
    reference: &'a str,
}

/// The part of the page that is equal for all requests.
#[derive(Template)]
#[template(path = "console/docs_reference.html")]
struct Reference {
    proofs: Vec<DocsProof>,
    groups: Vec<Group>,
    schemas: Vec<DocsSchema>,
}

/// An authentication method.
struct DocsProof {
    name: String,
    /// The header that carries it.
    header: String,
    /// The beginning of the header's value.
    prefix: &'static str,
    text: String,
    /// Whether a reader can have one to try requests.
    is_held: bool,
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
    /// The names of all authentication methods, separated by spaces.
    proof_names: String,
    parameters: Vec<Field>,
    bodies: Vec<Media>,
    answers: Vec<DocsResponse>,
}

/// The media type and schema of a body or a response.
struct Media {
    kind: String,
    shape: Shape,
    example: Option<String>,
    fields: Vec<FormField>,
}

/// A field of a form with several parts.
struct FormField {
    name: String,
    is_file: bool,
    is_required: bool,
    value: String,
}

struct DocsResponse {
    status: String,
    text: String,
    shape: Option<Shape>,
    example: Option<String>,
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

/// Returns the page of a listener's document.
pub(super) fn endpoints(document: &'static LazyLock<OpenApiDocument>) -> Endpoints<App> {
    let reference = Arc::new(LazyLock::new(move || render(document)));
    let show = move |State(app): State<App>, headers: HeaderMap| {
        let reference = Arc::clone(&reference);
        async move { show_docs(&app, &headers, reference.as_deref()) }
    };
    Endpoints::new().row(Access::Open, get("/docs", show))
}

/// `GET /docs`
fn show_docs(
    app: &App,
    headers: &HeaderMap,
    reference: Option<&str>,
) -> Result<Response, ApiError> {
    let base = snippets::base(app, snippets::host(headers));
    let model = snippets::model(&app.catalog.load());
    let snippets = snippets::of(&base, "inf_YOUR_KEY", &model);
    let shown = DocsPage {
        frame: Frame::bare("Documentation of the API"),
        base: &base,
        snippets: snippets.into_iter().take(EXAMPLES).collect(),
        reference: reference.ok_or_else(ApiError::internal)?,
    };
    page(StatusCode::OK, &shown)
}

fn render(document: &OpenApiDocument) -> Option<String> {
    let document = serde_json::from_slice(&document.text).ok()?;
    Reference::of(&document).render().ok()
}

impl Reference {
    fn of(document: &Value) -> Self {
        let tags = document["tags"].as_array().into_iter().flatten();
        let groups = tags.map(|tag| Group {
            text: text(&tag["description"]),
            operations: operations(document, &tag["name"]),
        });
        let schemas = entries(&document["components"]["schemas"]);
        let proofs = entries(&document["components"]["securitySchemes"]);
        Self {
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
        let (header, prefix) = match proof["type"].as_str() {
            Some("http") => ("Authorization".to_owned(), "Bearer "),
            _ => (text(&proof["name"]), ""),
        };
        Self {
            name: name.to_owned(),
            header,
            prefix,
            text: text(&proof["description"]),
            // A payment processor signs each body, and a key is sent in one way.
            is_held: !["paymentSignature", "bearerKey"].contains(&name),
        }
    }
}

fn operations(document: &Value, tag: &Value) -> Vec<DocsOperation> {
    let paths = entries(&document["paths"]);
    let all = paths.flat_map(|(path, methods)| {
        entries(methods).map(move |(method, operation)| (path, method, operation))
    });
    all.filter(|(_, _, operation)| operation["tags"][0] == *tag)
        .map(|(path, method, operation)| DocsOperation::of(path, method, operation, document))
        .collect()
}

impl DocsOperation {
    fn of(path: &str, method: &str, operation: &Value, document: &Value) -> Self {
        let ways = operation["security"].as_array().into_iter().flatten();
        let ways: Vec<Vec<_>> = ways
            .map(|way| entries(way).map(|(name, _)| name).collect())
            .collect();
        let proofs = ways.iter().map(|names| names.join(" with "));
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let bodies = entries(&operation["requestBody"]["content"]);
        Self {
            id: text(&operation["operationId"]),
            method: method.to_uppercase(),
            path: path.to_owned(),
            text: text(&operation["description"]),
            proofs: proofs.filter(|proof| !proof.is_empty()).collect(),
            proof_names: ways.concat().join(" "),
            parameters: parameters
                .map(|parameter| Field {
                    name: text(&parameter["name"]),
                    place: text(&parameter["in"]),
                    shape: Shape::of(&parameter["schema"]),
                    is_required: parameter["required"] == true,
                    text: text(&parameter["description"]),
                })
                .collect(),
            bodies: bodies
                .map(|(kind, media)| Media::of(kind, media, document))
                .collect(),
            answers: entries(&operation["responses"])
                .map(|(status, answer)| DocsResponse::of(status, answer))
                .collect(),
        }
    }
}

impl Media {
    fn of(kind: &str, media: &Value, document: &Value) -> Self {
        let is_form = kind.starts_with("multipart/");
        Self {
            kind: kind.to_owned(),
            shape: Shape::of(&media["schema"]),
            // A form's fields have their examples themselves.
            example: example(media).filter(|_| !is_form),
            fields: match is_form {
                true => FormField::all(media, document),
                false => Vec::new(),
            },
        }
    }

    fn is_json(&self) -> bool {
        self.kind == "application/json"
    }
}

impl FormField {
    /// Reads the fields of a form's schema.
    fn all(media: &Value, document: &Value) -> Vec<Self> {
        let schema = &media["schema"];
        let schema = match schema["$ref"]
            .as_str()
            .and_then(|path| path.strip_prefix('#'))
        {
            Some(path) => document.pointer(path).unwrap_or(schema),
            None => schema,
        };
        let fields = entries(&schema["properties"]).map(|(name, field)| {
            let holder = match &field["items"] {
                Value::Null => field,
                items => items,
            };
            let is_file = holder["format"] == "binary";
            let value = match &media["example"][name] {
                Value::String(text) if !is_file => text.clone(),
                _ => String::new(),
            };
            Self {
                name: name.to_owned(),
                is_file,
                is_required: is_required(schema, name),
                value,
            }
        });
        fields.collect()
    }
}

impl DocsResponse {
    fn of(status: &str, answer: &Value) -> Self {
        let media = entries(&answer["content"]).next();
        let is_json = media.is_some_and(|(kind, _)| kind == "application/json");
        let media = media.map(|(_, media)| media);
        Self {
            status: status.to_owned(),
            text: text(&answer["description"]),
            shape: media.map(|media| Shape::of(&media["schema"])),
            example: media.filter(|_| is_json).and_then(example),
            next: entries(&answer["links"])
                .map(|(_, link)| text(&link["operationId"]))
                .collect(),
        }
    }
}

fn example(media: &Value) -> Option<String> {
    let example = match &media["example"] {
        Value::Null => entries(&media["examples"])
            .next()
            .map(|(_, one)| &one["value"]),
        example => Some(example),
    };
    example.and_then(|example| serde_json::to_string_pretty(example).ok())
}

impl DocsSchema {
    fn of(name: &str, schema: &Value) -> Self {
        let fields = entries(&schema["properties"]).map(|(name, field)| Field {
            name: name.to_owned(),
            place: String::new(),
            shape: Shape::of(field),
            is_required: is_required(schema, name),
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

/// Returns whether an object must have a field.
fn is_required(schema: &Value, name: &str) -> bool {
    let names = schema["required"].as_array();
    names.is_some_and(|names| names.iter().any(|one| one == name))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let entries = value.as_object().into_iter().flat_map(Map::iter);
    entries.map(|(name, value)| (name.as_str(), value))
}
