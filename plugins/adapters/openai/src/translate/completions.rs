//! A request of Completions: the text at a place, between a prompt and a suffix.
//!
//! Two forms of this API exist. In OpenAI's, the response is a text; DeepSeek, Fireworks, SGLang and Ollama's compatible
//! server fill in with it. In Mistral's, it is a message, and the request has fewer fields.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use weir_sdk::adapter::{Failure, Request};
use weir_sdk::body;
use weir_sdk::chat::{ChatRequest, Content, Role};
use weir_sdk::wire::refuse;

use super::options::Options;
use super::request::{Body, Context, UpstreamRequest, entry_if};

pub(super) const DIALECT: &str = "openai-completions";

pub(super) const PATH: &str = "/completions";

/// Mistral's path.
pub(super) const FIM_PATH: &str = "/fim/completions";

/// The field of the text after the place.
const SUFFIX: &str = "suffix";

/// The form of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompletionsApi {
    /// OpenAI's.
    Text,
    /// Mistral's.
    Fim,
}

impl CompletionsApi {
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "text" => Some(Self::Text),
            "fim" => Some(Self::Fim),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Fim => "fim",
        }
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Text => PATH,
            Self::Fim => FIM_PATH,
        }
    }
}

/// Writes the body of the request.
///
/// # Errors
///
/// [`FailureKind::Unsupported`](weir_sdk::adapter::FailureKind::Unsupported) with the name of a field that the API
/// can't express.
pub(super) fn write(
    chat: &ChatRequest,
    request: &Request,
    options: &Options<'_>,
    api: CompletionsApi,
) -> Result<UpstreamRequest, Failure> {
    let prompt = prompt(chat)?;
    let context = Context::new(request, options);
    let content = CompletionBody {
        prompt,
        api,
        body: Body::new(chat, &context),
    };
    let body = context.splices.write(&content, body::estimated_bytes(chat));
    context.finish(body)
}

/// Returns the prompt: the texts of the user.
fn prompt(chat: &ChatRequest) -> Result<Vec<&str>, Failure> {
    let mut prompt = Vec::new();
    for (index, message) in chat.messages.iter().enumerate() {
        for part in &message.parts {
            match &part.content {
                Content::Text(text) if message.role == Role::User => prompt.push(text.as_str()),
                _ => {
                    let name = format!("messages[{index}]");
                    return Err(refuse(&name, format!("{name}: more than a prompt")));
                }
            }
        }
    }
    Ok(prompt)
}

struct CompletionBody<'a> {
    prompt: Vec<&'a str>,
    api: CompletionsApi,
    body: Body<'a>,
}

impl Serialize for CompletionBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { prompt, api, body } = self;
        let (chat, context) = (body.chat, body.context);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("model", &chat.model)?;
        map.serialize_entry("prompt", &context.splices.joined(prompt, ""))?;
        map.serialize_entry("max_tokens", &chat.max_output_tokens)?;
        body.write_temperature(&mut map)?;
        match api {
            CompletionsApi::Text => {
                body.write_penalties(&mut map)?;
                entry_if(&mut map, "seed", chat.seed)?;
            }
            CompletionsApi::Fim => {
                let penalties = [
                    ("presence_penalty", chat.presence_penalty),
                    ("frequency_penalty", chat.frequency_penalty),
                ];
                let mut set_penalties = penalties.iter().filter(|(_, value)| value.is_some());
                if let Some((name, _)) = set_penalties.next() {
                    return Err(context.refuse(name, *name));
                }
                entry_if(&mut map, "random_seed", chat.seed)?;
            }
        }
        body.write_stop(&mut map)?;
        body.write_stream(&mut map)?;
        body.write_extra(&mut map, &[SUFFIX])?;
        map.end()
    }
}
