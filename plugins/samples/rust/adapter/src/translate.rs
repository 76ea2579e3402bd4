//! Acme's `POST /generate`: a prompt in, a stream of texts out.

use serde::{Deserialize, Serialize};
use weir_sdk::adapter::{
    BodyPart, CredentialSlot, Description, Event, Exchange, Failure, HttpRequest, HttpResponseHead,
    RefusedSetting, Request, Setting, StartedExchange, Step, Task,
};
use weir_sdk::blocks::Blocks;
use weir_sdk::chat::{Block, ChatRequest, Content, FinishReason, ResponseFormat, Role, Usage};
use weir_sdk::failure::{MAX_ERROR_BODY_BYTES, from_status};
use weir_sdk::sse::Sse;

/// One attempt: what has been read of Acme's answer.
#[derive(Debug, Default)]
pub struct Translation {
    /// A response that is no answer: its head and what was kept of its body.
    refused: Option<(HttpResponseHead, Vec<u8>)>,
    stream: Sse,
    blocks: Blocks,
    is_finished: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    prompt: String,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    tone: &'a str,
}

/// `{"text":"Hel"}` for each piece, and at the end `{"end":"done","in":3,"out":2}`.
#[derive(Deserialize)]
struct Chunk {
    text: Option<String>,
    end: Option<String>,
    r#in: Option<u64>,
    out: Option<u64>,
}

impl Exchange for Translation {
    fn describe() -> Description {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Description {
            name: "acme".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dialect: "acme".to_owned(),
            credential: CredentialSlot::Header("x-acme-key".to_owned()),
            capabilities: words(&["chat"]),
            options: words(&["tone"]),
            request_headers: words(&["content-type"]),
            response_headers: Vec::new(),
            path_prefixes: words(&["/generate"]),
        }
    }

    fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
        match options.first() {
            None => Ok(b"plain".to_vec()),
            Some((_, tone)) if matches!(tone.as_str(), "plain" | "warm") => {
                Ok(tone.clone().into_bytes())
            }
            Some((name, _)) => Err(RefusedSetting {
                name: name.clone(),
                why: "must be plain or warm".to_owned(),
            }),
        }
    }

    fn begin(request: Request, configuration: &[u8]) -> Result<StartedExchange<Self>, Failure> {
        let Task::Chat(chat) = &request.task else {
            return Err(Failure::unsupported("image requests"));
        };
        let body = Body {
            model: &chat.model,
            prompt: prompt(chat)?,
            max_tokens: chat.max_output_tokens,
            temperature: chat.temperature,
            tone: str::from_utf8(configuration).unwrap_or("plain"),
        };
        let body =
            serde_json::to_vec(&body).map_err(|error| Failure::unsupported(error.to_string()))?;
        let step = Step::Send(HttpRequest {
            method: "POST".to_owned(),
            path: "/generate".to_owned(),
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: vec![BodyPart::Bytes(body)],
        });
        Ok(StartedExchange {
            exchange: Self::default(),
            step,
            ignored: ignored(chat),
        })
    }

    fn next(&mut self) -> Result<Step, Failure> {
        Ok(Step::Done)
    }

    fn head(&mut self, head: HttpResponseHead) -> Result<(), Failure> {
        self.refused = (head.status != 200).then(|| (head, Vec::new()));
        Ok(())
    }

    fn body(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Failure> {
        if let Some((_, body)) = &mut self.refused {
            let room = MAX_ERROR_BODY_BYTES - body.len();
            body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            return Ok(());
        }
        self.stream.push(bytes);
        while let Some(event) = self.stream.next()? {
            let chunk: Chunk = serde_json::from_str(event.data)
                .map_err(|error| Failure::malformed(error.to_string()))?;
            if let Some(text) = chunk.text {
                self.blocks.say(Block::Text, text, events);
            }
            if let Some(end) = chunk.end {
                self.blocks.end_run(events);
                events.push(Event::Usage(usage(chunk.r#in, chunk.out)));
                events.push(Event::Finish(match end.as_str() {
                    "done" => FinishReason::Stop,
                    "limit" => FinishReason::Length,
                    _ => FinishReason::Other(end),
                }));
                self.is_finished = true;
            }
        }
        Ok(())
    }

    fn end(&mut self, _events: &mut Vec<Event>) -> Result<(), Failure> {
        match &self.refused {
            Some((head, body)) => Err(from_status(
                head.status,
                &head.headers,
                &String::from_utf8_lossy(body),
            )),
            None if self.is_finished => Ok(()),
            None => Err(Failure::malformed("the stream ended before the answer did")),
        }
    }
}

/// All texts, each behind the role of who said it. What Acme can't be asked is refused by its name.
fn prompt(chat: &ChatRequest) -> Result<String, Failure> {
    let refuse = |what: &str| Err(Failure::unsupported(what).with_param(what));
    let unsupported = [
        (!chat.tools.is_empty(), "tools"),
        (
            chat.response_format != ResponseFormat::Text,
            "response_format",
        ),
        (chat.reasoning.effort.is_some(), "reasoning_effort"),
        (chat.top_p.is_some(), "top_p"),
        (chat.top_k.is_some(), "top_k"),
        (chat.presence_penalty.is_some(), "presence_penalty"),
        (chat.frequency_penalty.is_some(), "frequency_penalty"),
        (chat.seed.is_some(), "seed"),
        (!chat.stop.is_empty(), "stop"),
    ];
    if let Some((_, name)) = unsupported.iter().find(|(is_set, _)| *is_set) {
        return refuse(name);
    }
    let mut extra = chat.extra.iter().filter(|(name, _)| !is_advisory(name));
    if let Some((name, _)) = extra.next() {
        return refuse(name);
    }
    let mut prompt = String::new();
    for message in &chat.messages {
        for part in &message.parts {
            let Content::Text(text) = &part.content else {
                return refuse("messages");
            };
            if message.name.is_some() || !message.extra.is_empty() || !part.extra.is_empty() {
                return refuse("messages");
            }
            prompt.push_str(&format!("{}: {text}\n", speaker(message.role)));
        }
    }
    Ok(prompt)
}

fn speaker(role: Role) -> &'static str {
    match role {
        Role::System => "Instructions",
        Role::User => "Question",
        Role::Assistant | Role::Tool => "Answer",
    }
}

/// Fields that label a request and change nothing about its answer.
fn is_advisory(field: &str) -> bool {
    matches!(
        field,
        "user" | "metadata" | "prompt_cache_key" | "safety_identifier" | "service_tier"
    )
}

/// What is left out, by its name.
fn ignored(chat: &ChatRequest) -> Vec<String> {
    let names = chat.extra.iter().map(|(name, _)| name);
    let mut names: Vec<_> = names.filter(|name| is_advisory(name)).cloned().collect();
    let mut parts = chat.messages.iter().flat_map(|message| &message.parts);
    if parts.any(|part| part.cache.is_some()) {
        names.push("cache_control".to_owned());
    }
    names
}

fn usage(input: Option<u64>, output: Option<u64>) -> Usage {
    Usage {
        input_tokens: input,
        cache_read_tokens: None,
        cache_write_short_tokens: None,
        cache_write_long_tokens: None,
        output_tokens: output,
        reasoning_tokens: None,
        images: None,
        other: Vec::new(),
    }
}
