//! The response as one object, and the parts that streams share with it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use weir_ledger::Credits;
use weir_sandbox::adapter::bindings::chat::{
    Block, BlockStart, CallKind, Event, Fragment, Media, Opaque, ToolCallStart,
};

use super::blocks::{
    ChatAnnotation, ChatBlocks, ExtraContent, FINISH_REASONS, FragmentPlace,
    ResponseReasoningDetail,
};
use crate::AnswerHead;
use crate::BilledUsage;
use crate::json::{guests_object, guests_objects};
use crate::schema::{Described, Schemas, either, written};

/// Adds the schema of a response.
pub(super) fn describe(schemas: &mut Schemas) {
    ChatBody::schema(schemas);
}

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
pub fn data_event<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: ");
    json(value, out);
    out.extend_from_slice(b"\n\n");
}

/// Appends a value's JSON.
pub fn json<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("plain structs serialize, and a Vec takes every byte");
}

written! {
    /// A model's response in Chat Completions.
    #[derive(Debug)]
    struct ChatBody<'a> as "ChatCompletion" {
        /// The response's id.
        id: &'a str,
        /// The kind of the object.
        object: &'static str = [OneOf(&["chat.completion"])],
        /// The time of the response, in seconds since 1970.
        created: i64,
        /// The requested model.
        model: &'a str,
        /// The response, as one choice.
        choices: [ChatChoice<'a>; 1],
        /// The token usage.
        usage: ChatUsage,
    }
}

written! {
    /// The response.
    #[derive(Debug)]
    struct ChatChoice<'a> as "ChatChoice" {
        /// 0.
        index: u32,
        /// The model's message. To continue the conversation, send it back unchanged.
        message: AnswerMessage<'a>,
        /// The log probabilities of the response's tokens, if the request wants them.
        logprobs: Option<&'a Logprobs>,
        /// The reason for the end: `length` is an output limit, `content_filter` a text that was held back.
        finish_reason: &'static str = [OneOf(&FINISH_REASONS)],
    }
}

written! {
    /// The log probabilities of a response's tokens, in OpenAI's form.
    #[derive(Debug, Clone, Default)]
    pub(super) struct Logprobs as "ChatLogprobs" {
        /// Those of the text.
        content: Option<Vec<Box<RawValue>>>,
        /// Those of the refusal.
        refusal: Option<Vec<Box<RawValue>>>,
    }
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

written! {
    /// The model's message.
    #[derive(Debug)]
    struct AnswerMessage<'a> as "ChatAnswerMessage" {
        /// The author's role.
        role: &'static str = [OneOf(&["assistant"])],
        /// The text; null if the message has only calls or a refusal.
        content: Option<&'a str>,
        /// The model's refusal, if there is one.
        refusal: Option<&'a str>,
        /// The model's reasoning.
        #[serde(skip_serializing_if = "str::is_empty")]
        reasoning_content: &'a str,
        /// The model's reasoning with the provider's proofs.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        reasoning_details: &'a [ResponseReasoningDetail],
        /// The model's calls of tools.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        tool_calls: &'a [ResponseToolCall],
        /// The images that the model has made.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        images: &'a [AnswerImage],
        /// The sources of the text.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        annotations: &'a [ChatAnnotation],
        /// A provider's own data.
        #[serde(skip_serializing_if = "Option::is_none")]
        provider_specific_fields: Option<ResponseProviderFields<'a>>,
    }
}

written! {
    /// A call of a tool.
    #[derive(Debug, Clone)]
    struct ResponseToolCall as "ChatAnswerToolCall" {
        /// The id of the call, which the tool's message repeats.
        id: String,
        /// The kind of the tool.
        #[serde(rename = "type")]
        kind: &'static str = [OneOf(&["function", "custom"])],
        #[serde(flatten)]
        called: ResponseTool,
        /// The provider's proof of the call. Send it back unchanged.
        #[serde(skip_serializing_if = "Option::is_none")]
        extra_content: Option<ExtraContent>,
    }
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "lowercase")]
enum ResponseTool {
    Function(ResponseFunction),
    Custom(ResponseCustomTool),
}

impl Described for ResponseTool {
    fn schema(schemas: &mut Schemas) -> Value {
        let function = ResponseFunction::schema(schemas);
        let custom = ResponseCustomTool::schema(schemas);
        either(
            schemas,
            "ChatAnswerTool",
            [
                ("function", "The called function.", function),
                ("custom", "The called tool with free text.", custom),
            ],
        )
    }
}

written! {
    /// A called function.
    #[derive(Debug, Clone)]
    struct ResponseFunction as "ChatAnswerFunction" {
        /// The name of the function.
        name: String,
        /// The arguments, as JSON in a text.
        arguments: String,
    }
}

written! {
    /// A called tool with free text.
    #[derive(Debug, Clone)]
    struct ResponseCustomTool as "ChatAnswerCustomTool" {
        /// The name of the tool.
        name: String,
        /// The text.
        input: String,
    }
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

written! {
    /// An image, in OpenRouter's form.
    #[derive(Debug, Clone)]
    pub(super) struct AnswerImage as "ChatAnswerImage" {
        /// In chunks: the position in the list.
        #[serde(skip_serializing_if = "Option::is_none")]
        index: Option<usize>,
        /// The kind of the entry.
        #[serde(rename = "type")]
        kind: &'static str = [OneOf(&["image_url"])],
        /// The image.
        image_url: ResponseImageUrl,
    }
}

written! {
    /// An image at a URL, or in a data URL.
    #[derive(Debug, Clone)]
    struct ResponseImageUrl as "ChatAnswerImageUrl" {
        /// The URL.
        url: String,
    }
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

written! {
    /// A provider's data beyond Chat Completions, in LiteLLM's field.
    #[derive(Debug)]
    struct ResponseProviderFields<'a> as "ChatAnswerProviderFields" {
        /// Blocks that only their provider can read.
        blocks: &'a [ResponseOpaqueBlock],
    }
}

written! {
    /// A block that only its provider can read.
    #[derive(Debug, Clone)]
    pub(super) struct ResponseOpaqueBlock as "ChatAnswerProviderBlock" {
        /// In chunks: the position in the list.
        #[serde(skip_serializing_if = "Option::is_none")]
        index: Option<usize>,
        /// The provider's word for the kind of the block.
        kind: String,
        /// The block.
        block: Box<RawValue> = [Object],
        /// The provider that can read the block.
        #[serde(skip_serializing_if = "Option::is_none")]
        provider: Option<String>,
    }
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

written! {
    /// The token usage and its charge.
    #[derive(Debug)]
    pub(crate) struct ChatUsage as "ChatUsage" {
        /// The tokens of the input.
        prompt_tokens: u64,
        /// The tokens of the response, reasoning included.
        completion_tokens: u64,
        /// The tokens of both.
        total_tokens: u64,
        /// A part of the tokens of the input.
        prompt_tokens_details: PromptTokensDetails,
        /// A part of the tokens of the response.
        completion_tokens_details: CompletionTokensDetails,
        /// The charge of the request, in credits. It is a field of weir.
        credits: Credits,
    }
}

written! {
    /// A part of the tokens of the input.
    #[derive(Debug)]
    struct PromptTokensDetails as "ChatPromptTokens" {
        /// The tokens that the provider's cache had.
        cached_tokens: u64,
    }
}

written! {
    /// A part of the tokens of the response.
    #[derive(Debug)]
    struct CompletionTokensDetails as "ChatCompletionTokens" {
        /// The tokens of the reasoning.
        reasoning_tokens: u64,
    }
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
