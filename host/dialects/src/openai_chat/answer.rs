//! The response as one object, and the parts that streams share with it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;
use weir_sandbox::adapter::bindings::chat::{
    Block, BlockStart, CallKind, Event, Fragment, Media, Opaque, ToolCallStart,
};

use super::blocks::{
    ChatAnnotation, ChatBlocks, ExtraContent, FragmentPlace, ResponseReasoningDetail,
};
use crate::AnswerHead;
use crate::BilledUsage;
use crate::json::{guests_object, guests_objects};
use weir_ledger::Credits;

/// A plain response under construction.
#[derive(Debug, Clone)]
pub struct Completion {
    head: AnswerHead,
    said: ChoiceContent,
}

#[derive(Debug, Clone, Default)]
struct ChoiceContent {
    content: String,
    refusal: String,
    reasoning: String,
    reasoning_details: Vec<ResponseReasoningDetail>,
    tool_calls: Vec<ResponseToolCall>,
    images: Vec<AnswerImage>,
    annotations: Vec<ChatAnnotation>,
    opaque: Vec<ResponseOpaqueBlock>,
    logprobs: Logprobs,
    blocks: ChatBlocks,
    finish_reason: Option<&'static str>,
}

impl Completion {
    /// Returns an empty response.
    pub fn new(head: AnswerHead) -> Self {
        Self {
            head,
            said: ChoiceContent::default(),
        }
    }

    /// Adds an event. The message has no place for the upstream's response id, for audio, and for proofs of text; the
    /// usage is the billed one.
    pub fn push(&mut self, event: Event) {
        let said = &mut self.said;
        match event {
            Event::BlockStart(start) => said.begin(start),
            Event::Fragment(fragment) => said.add(fragment),
            Event::Signature(fragment) => said.blocks.sign(&fragment),
            Event::Sealed(fragment) => said.blocks.seal(&fragment),
            Event::Logprobs(piece) => said.logprobs.add(&said.blocks, &piece),
            Event::Citation(citation) => said
                .annotations
                .extend(said.blocks.annotation(None, &citation)),
            Event::BlockEnd(index) => said.reasoning_details.extend(said.blocks.end(index)),
            Event::Opaque(opaque) => {
                let provider = said.blocks.provider();
                said.opaque
                    .extend(ResponseOpaqueBlock::new(None, &opaque.block, provider));
            }
            Event::Media(media) => said.images.extend(AnswerImage::new(None, &media)),
            Event::Finish(reason) => said.finish_reason = Some(said.blocks.finish_word(&reason)),
            Event::Started(_) | Event::MediaBytes(_) | Event::Usage(_) => {}
        }
    }

    /// Sets the signature of the next call.
    pub fn sign_next_call(&mut self, signature: Option<&str>) {
        self.said.blocks.sign_next_call(signature);
    }

    /// Sets the provider of the following events.
    pub fn answered_by(&mut self, provider: &str) {
        self.said.blocks.answered_by(provider);
    }

    /// Discards an attempt without output.
    pub fn clear(&mut self) {
        self.said = ChoiceContent::default();
    }

    /// Returns the `chat.completion` object.
    pub fn into_body(self, billed: &BilledUsage) -> Vec<u8> {
        let said = &self.said;
        // Null means that the message has only calls or a refusal; an empty response has an empty text.
        let is_text =
            !said.content.is_empty() || (said.tool_calls.is_empty() && said.refusal.is_empty());
        let answer = ChatBody {
            id: &completion_id(&self.head),
            object: "chat.completion",
            created: self.head.created,
            model: &self.head.model,
            choices: [ChatChoice {
                index: 0,
                message: AnswerMessage {
                    role: "assistant",
                    content: is_text.then_some(said.content.as_str()),
                    refusal: (!said.refusal.is_empty()).then_some(said.refusal.as_str()),
                    reasoning_content: &said.reasoning,
                    reasoning_details: &said.reasoning_details,
                    tool_calls: &said.tool_calls,
                    images: &said.images,
                    annotations: &said.annotations,
                    provider_specific_fields: (!said.opaque.is_empty()).then_some(
                        ResponseProviderFields {
                            blocks: &said.opaque,
                        },
                    ),
                },
                logprobs: said.logprobs.any(),
                finish_reason: said.finish_reason.unwrap_or("stop"),
            }],
            usage: billed.into(),
        };
        let mut body = Vec::with_capacity(512 + said.content.len());
        json(&answer, &mut body);
        body
    }
}

impl ChoiceContent {
    fn begin(&mut self, start: BlockStart) {
        self.blocks.begin(&start);
        if let Block::ToolCall(call) = start.block {
            let extra_content = self.blocks.signature_of_call();
            self.tool_calls
                .push(ResponseToolCall::new(call, extra_content));
        }
    }

    fn add(&mut self, fragment: Fragment) {
        let text = match self.blocks.follow(&fragment) {
            Some(FragmentPlace::Content) => &mut self.content,
            Some(FragmentPlace::Refusal) => &mut self.refusal,
            Some(FragmentPlace::Reasoning) => &mut self.reasoning,
            Some(FragmentPlace::Call(call)) => match &mut self.tool_calls[call.index].called {
                ResponseTool::Function(function) => &mut function.arguments,
                ResponseTool::Custom(custom) => &mut custom.input,
            },
            None => return,
        };
        // The first piece is stored without a copy, because a plain response has only one.
        if text.is_empty() {
            *text = fragment.text;
        } else {
            text.push_str(&fragment.text);
        }
    }
}

/// The response's id in OpenAI's form.
pub(super) fn completion_id(head: &AnswerHead) -> String {
    format!("chatcmpl-{}", head.id)
}

/// The word for the form of a call's input.
pub(super) fn call_word(kind: CallKind) -> &'static str {
    match kind {
        CallKind::Function => "function",
        CallKind::Custom => "custom",
    }
}

/// Appends an event without a name, whose data is a value's JSON.
pub(crate) fn data_event<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: ");
    json(value, out);
    out.extend_from_slice(b"\n\n");
}

/// Appends a value's JSON.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("plain structs serialize, and a Vec takes every byte");
}

#[derive(Debug, Serialize)]
struct ChatBody<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: [ChatChoice<'a>; 1],
    usage: ChatUsage,
}

#[derive(Debug, Serialize)]
struct ChatChoice<'a> {
    index: u32,
    message: AnswerMessage<'a>,
    logprobs: Option<&'a Logprobs>,
    finish_reason: &'static str,
}

/// The log probabilities of a response.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Logprobs {
    content: Option<Vec<Box<RawValue>>>,
    refusal: Option<Vec<Box<RawValue>>>,
}

impl Logprobs {
    /// Adds the log probabilities of a block's next tokens.
    pub(super) fn add(&mut self, blocks: &ChatBlocks, piece: &Fragment) {
        let entries = guests_objects(&piece.text);
        let list = match blocks.is_refusal(piece.index) {
            Some(false) => &mut self.content,
            Some(true) => &mut self.refusal,
            None => return,
        };
        if !entries.is_empty() {
            list.get_or_insert_default().extend(entries);
        }
    }

    /// The log probabilities, if there are any.
    pub(super) fn any(&self) -> Option<&Self> {
        (self.content.is_some() || self.refusal.is_some()).then_some(self)
    }
}

#[derive(Debug, Serialize)]
struct AnswerMessage<'a> {
    role: &'static str,
    content: Option<&'a str>,
    refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    reasoning_content: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    reasoning_details: &'a [ResponseReasoningDetail],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tool_calls: &'a [ResponseToolCall],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    images: &'a [AnswerImage],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    annotations: &'a [ChatAnnotation],
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_specific_fields: Option<ResponseProviderFields<'a>>,
}

#[derive(Debug, Clone, Serialize)]
struct ResponseToolCall {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    called: ResponseTool,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<ExtraContent>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "lowercase")]
enum ResponseTool {
    Function(ResponseFunction),
    Custom(ResponseCustomTool),
}

#[derive(Debug, Clone, Serialize)]
struct ResponseFunction {
    name: String,
    arguments: String,
}

#[derive(Debug, Clone, Serialize)]
struct ResponseCustomTool {
    name: String,
    input: String,
}

impl ResponseToolCall {
    fn new(start: ToolCallStart, extra_content: Option<ExtraContent>) -> Self {
        let name = start.name;
        Self {
            id: start.id,
            kind: call_word(start.kind),
            called: match start.kind {
                CallKind::Function => ResponseTool::Function(ResponseFunction {
                    name,
                    arguments: String::new(),
                }),
                CallKind::Custom => ResponseTool::Custom(ResponseCustomTool {
                    name,
                    input: String::new(),
                }),
            },
            extra_content,
        }
    }
}

/// An image in OpenRouter's form, which others have adopted; OpenAI's own responses have none.
#[derive(Debug, Clone, Serialize)]
pub(super) struct AnswerImage {
    /// Only in chunks, as in an annotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(rename = "type")]
    kind: &'static str,
    image_url: ResponseImageUrl,
}

#[derive(Debug, Clone, Serialize)]
struct ResponseImageUrl {
    url: String,
}

impl AnswerImage {
    /// Returns `None` for audio, which the dialect returns only on request and in another form, and for an image that
    /// another one replaces.
    pub(super) fn new(index: Option<usize>, media: &Media) -> Option<Self> {
        if !media.media_type.starts_with("image/") || media.is_preview {
            return None;
        }
        let url = media.url.clone().unwrap_or_else(|| {
            let mut url = format!("data:{};base64,", media.media_type);
            STANDARD.encode_string(&media.data, &mut url);
            url
        });
        Some(Self {
            index,
            kind: "image_url",
            image_url: ResponseImageUrl { url },
        })
    }
}

/// A provider's data beyond the dialect, under LiteLLM's name.
#[derive(Debug, Serialize)]
struct ResponseProviderFields<'a> {
    blocks: &'a [ResponseOpaqueBlock],
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct ResponseOpaqueBlock {
    /// Only in chunks, as in an annotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    kind: String,
    block: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
}

impl ResponseOpaqueBlock {
    /// Returns `None` if the block is not valid JSON.
    pub(super) fn new(
        index: Option<usize>,
        opaque: &Opaque,
        provider: Option<String>,
    ) -> Option<Self> {
        Some(Self {
            index,
            kind: opaque.kind.clone(),
            block: guests_object(&opaque.json)?,
            provider,
        })
    }
}

/// The usage of a response.
#[derive(Debug, Serialize)]
pub(crate) struct ChatUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: PromptTokensDetails,
    completion_tokens_details: CompletionTokensDetails,
    /// weir's own field: the charge of the request.
    credits: Credits,
}

#[derive(Debug, Serialize)]
struct PromptTokensDetails {
    cached_tokens: u64,
}

#[derive(Debug, Serialize)]
struct CompletionTokensDetails {
    reasoning_tokens: u64,
}

impl From<&BilledUsage> for ChatUsage {
    fn from(billed: &BilledUsage) -> Self {
        let counts = &billed.tokens;
        Self {
            prompt_tokens: counts.input,
            completion_tokens: counts.output,
            total_tokens: counts.input.saturating_add(counts.output),
            prompt_tokens_details: PromptTokensDetails {
                cached_tokens: counts.cache_read,
            },
            completion_tokens_details: CompletionTokensDetails {
                reasoning_tokens: counts.reasoning,
            },
            credits: billed.credits,
        }
    }
}
