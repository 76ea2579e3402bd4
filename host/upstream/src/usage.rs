//! Token counts: estimates before a request, limits and checks after it.
//!
//! Adapters' reports are untrusted. weir clamps input to [`RequestSize::max_input_tokens`], and output between the
//! tokens that the visible bytes need at least and the sent limit. If a report is missing, or is zero for data that
//! weir has seen, weir counts bytes.
//!
//! **Invariant:** the hold of a request covers the maximum that the clamp permits.

use serde::Deserialize;
use weir_dialects::Attachment;
use weir_dialects::hosted::{self, ASSUMED_USES, MAX_USES};
use weir_ledger::pricing::UsageBound;
use weir_ledger::receipt::TierFigures;
use weir_ledger::usage::{Billable, Quantity};
use weir_ledger::{TokenCounts, Unit};
use weir_sandbox::adapter::bindings::chat::{
    BuiltInTool, ChatRequest, Content, File, Image, ImageRequest, Message, ResponseFormat, Source,
    ToolContent, ToolKind, Usage,
};

use crate::audio_length::RecordingLength;
use crate::file_reader::DocumentSize;
use crate::image_size::ImageSize;
use crate::image_tokens::ImageCounting;

/// Bytes of text per token, for estimates: English has about four.
pub const BYTES_PER_TOKEN: u64 = 4;

/// Bytes of text per token, for bounds.
const BYTES_PER_BOUND_TOKEN: u64 = 2;

/// The tokens that a response may report beyond its output limit: some upstreams count a few framing tokens.
pub const OUTPUT_SLACK_TOKENS: u64 = 64;

/// The text tokens of a document's page, besides the tokens of an image.
const PAGE_TEXT_TOKENS: u64 = 1_000;

/// The maximum ratio of reported to estimated input tokens: some texts are denser than the average.
const INPUT_BELIEVED: u64 = 2;

/// The maximum visible bytes of a token, since long runs make long tokens.
const VISIBLE_BYTES_PER_TOKEN: u64 = 16;

/// The visible bytes that need no token.
const VISIBLE_BYTES_FREE: u64 = 1 << 10;

/// The maximum of a reported count in weir's own cost: ten windows of a million tokens.
const MAX_REPORTED: u64 = 10_000_000;

/// The estimated tokens of one result of such a tool.
const HOSTED_RESULT_TOKENS: u64 = 8_192;

/// The estimated input tokens of a second of audio: vendors count from 10 to 32, and sell a minute as the price of about as
/// many as this.
const AUDIO_TOKENS_PER_SECOND: u64 = 40;

/// The name of a count in reported usage: input tokens of audio.
const AUDIO_INPUT: &str = "audio-input-tokens";

const AUDIO_OUTPUT: &str = "audio-output-tokens";

const IMAGE_OUTPUT: &str = "image-output-tokens";

/// The provider's searches of the web.
const WEB_SEARCHES: &str = "web-searches";

/// Seconds of a recording.
const AUDIO_SECONDS: &str = "audio-seconds";

/// The searches of documents.
const SEARCH_UNITS: &str = "search-units";

/// The size of a request before it is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestSize {
    /// Bytes of text: messages, text files, file names, tool calls and results, tool definitions, schemas.
    pub text_bytes: u64,
    /// Messages.
    pub messages: u64,
    /// Tool definitions.
    pub tools: u64,
    pub images: u64,
    /// Their tokens together.
    pub image_tokens: u64,
    /// Documents that weir has not read yet. Until then, they are uncounted files.
    pub unread_documents: u64,
    /// Maximum pages of documents.
    pub pages: u64,
    /// Maximum bytes of text on these pages.
    pub page_text_bytes: u64,
    /// Files and audio that only the upstream can count: each may fill the context window.
    pub uncounted_files: u64,
    /// Their bytes, if the request contains them.
    pub uncounted_bytes: u64,
    /// The maximum uses of tools that the provider runs. Their results are input.
    pub hosted_uses: u64,
    /// The maximum searches: of those tools in the web, or of documents.
    pub searches: u64,
    /// The searches that the provider charges at least.
    pub least_searches: u64,
    /// The length of a recording.
    pub audio_seconds: u64,
    /// The estimated output tokens of a spoken text.
    pub spoken_tokens: u64,
    /// The input in characters or seconds, if the price counts these: charged without a report.
    pub units: Option<Quantity>,
    /// Whether the provider may find more units than weir, which it reports.
    pub may_have_more_units: bool,
}

/// The limits of a request's model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelLimits {
    /// Tokens of input and output together.
    pub context_window: u64,
    /// The maximum tokens of an input image, which the pages of a document count as, too.
    pub max_image_tokens: u64,
    /// The maximum tokens of the response, sent upstream.
    pub output_limit: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckedUsage {
    /// The usage for display and billing; the meter counts images.
    pub used: Billable,
    /// Whether any count is weir's own estimate.
    pub estimated: bool,
    /// Whether weir changed an implausible report.
    pub clamped: bool,
}

impl RequestSize {
    /// Measures a request with these attachments for its images, audio and documents.
    pub fn of(request: &ChatRequest, attachments: &[Attachment], counting: ImageCounting) -> Self {
        Self::of_chat(request, &mut Attached::new(attachments, counting))
    }

    /// Measures a request, and finds its documents.
    fn of_chat(request: &ChatRequest, attached: &mut Attached<'_>) -> Self {
        let mut size = Self {
            messages: request.messages.len() as u64,
            tools: request.tools.len() as u64,
            ..Self::default()
        };
        for Message {
            name, parts, extra, ..
        } in &request.messages
        {
            size.optional(name);
            size.extra(extra);
            for part in parts {
                size.extra(&part.extra);
                size.content(&part.content, attached);
            }
        }
        size.extra(&request.extra);
        for tool in &request.tools {
            size.extra(&tool.extra);
            size.tool(&tool.kind);
        }
        if let ResponseFormat::JsonSchema(schema) = &request.response_format {
            size.optional(&schema.name);
            size.optional(&schema.description);
            size.text(&schema.schema);
        }
        size.unread_documents = attached.documents.len() as u64;
        size
    }

    /// Measures a request for images.
    pub fn of_images(
        request: &ImageRequest,
        attachments: &[Attachment],
        counting: ImageCounting,
    ) -> Self {
        let attached = &Attached::new(attachments, counting);
        let mut size = Self {
            messages: 1,
            ..Self::default()
        };
        size.text(&request.prompt);
        size.extra(&request.extra);
        for image in request.inputs.iter().chain(&request.mask) {
            size.image(image, attached);
        }
        size
    }

    /// Measures a request of texts with these bytes. Each text counts as a message.
    pub fn of_texts(texts: impl IntoIterator<Item = u64>, extra: &[(String, String)]) -> Self {
        let mut size = Self::default();
        size.extra(extra);
        for bytes in texts {
            size.messages += 1;
            size.text_bytes += bytes;
        }
        size
    }

    /// Returns the size with the documents, by their bytes and sizes; `None` for each that cannot be counted.
    #[must_use]
    pub fn with_documents(mut self, documents: &[(u64, Option<DocumentSize>)]) -> Self {
        self.unread_documents = 0;
        for (bytes, size) in documents {
            if let Some(size) = size {
                self.uncounted_files = self.uncounted_files.saturating_sub(1);
                self.uncounted_bytes = self.uncounted_bytes.saturating_sub(*bytes);
                self.pages += size.pages;
                self.page_text_bytes = self.page_text_bytes.saturating_add(size.text_bytes);
            }
        }
        self
    }

    /// Returns the size without unread documents: the request costs at least as much.
    #[must_use]
    pub fn without_unread_documents(self) -> Self {
        Self {
            unread_documents: 0,
            uncounted_files: self.uncounted_files - self.unread_documents,
            ..self
        }
    }

    /// Sets the length of a recording that is paid by the second.
    pub fn set_seconds_as_units(&mut self, length: RecordingLength) {
        self.units = Some(Quantity::new(Unit::Seconds, length.seconds));
        self.may_have_more_units = !length.is_exact;
    }

    /// Estimates the input tokens, without pages and uncounted files.
    pub fn estimated_tokens(&self) -> u64 {
        self.text_bytes.div_ceil(BYTES_PER_TOKEN)
            + self.image_tokens
            + AUDIO_TOKENS_PER_SECOND.saturating_mul(self.audio_seconds)
    }

    /// Estimates the input tokens. An uncounted file fills the rest of the context window.
    pub fn estimated_tokens_with_files(&self, max_image_tokens: u64, context_window: u64) -> u64 {
        let counted = self.estimated_tokens() + self.page_tokens(max_image_tokens, BYTES_PER_TOKEN);
        match self.uncounted_files {
            0 => counted,
            _ => counted.max(context_window),
        }
    }

    /// Returns the maximum plausible input tokens, which the request's hold covers. Files fill at most the context
    /// window.
    pub fn max_input_tokens(&self, model: &ModelLimits) -> u64 {
        let without_files = INPUT_BELIEVED * self.bound_tokens();
        let window = without_files.max(model.context_window);
        match self.uncounted_files {
            0 => {
                let pages = self.page_tokens(model.max_image_tokens, BYTES_PER_BOUND_TOKEN);
                let results = HOSTED_RESULT_TOKENS * self.hosted_uses;
                let files = INPUT_BELIEVED.saturating_mul(pages + results);
                without_files.saturating_add(files).min(window)
            }
            _ => window,
        }
    }

    /// Returns the size of the request if no provider runs its built-in tools.
    #[must_use]
    pub fn without_hosted_tools(self) -> Self {
        Self {
            hosted_uses: 0,
            searches: 0,
            ..self
        }
    }

    /// Whether a provider may run tools of the request.
    pub fn has_hosted_tools(&self) -> bool {
        self.hosted_uses > 0
    }

    /// Returns the maximum usage of a request for `images` images: the amount that its hold covers.
    pub fn bound(&self, model: &ModelLimits, images: u32) -> UsageBound {
        UsageBound {
            input_tokens: self.max_input_tokens(model),
            input: self.units,
            has_audio: self.may_have_audio(),
            output_tokens: model.output_limit + OUTPUT_SLACK_TOKENS,
            images,
            searches: self.searches,
        }
    }

    /// Whether input tokens may be of audio. Files may contain it.
    fn may_have_audio(&self) -> bool {
        self.uncounted_files + self.audio_seconds > 0
    }

    /// Whether the request has more than text.
    pub fn has_files(&self) -> bool {
        self.images + self.pages + self.uncounted_files > 0
    }

    /// Returns an upper bound of the input tokens, without uncounted files.
    fn bound_tokens(&self) -> u64 {
        self.text_bytes / BYTES_PER_BOUND_TOKEN
            + 16 * self.messages
            + 64 * self.tools
            + if self.tools > 0 { 512 } else { 0 }
            + self.image_tokens
            + AUDIO_TOKENS_PER_SECOND.saturating_mul(self.audio_seconds)
    }

    /// Counts pages as images and as texts with so many bytes a token.
    fn page_tokens(&self, max_image_tokens: u64, bytes_per_token: u64) -> u64 {
        let text = self.page_text_bytes / bytes_per_token;
        self.pages * max_image_tokens + text.max(self.pages * PAGE_TEXT_TOKENS)
    }

    fn content(&mut self, content: &Content, attached: &mut Attached<'_>) {
        match content {
            Content::Text(text) | Content::Refusal(text) => self.text(text),
            Content::Image(image) => self.image(image, attached),
            Content::Audio(audio) => self.uncounted(&audio.source, attached),
            Content::File(file) => self.file(file, attached),
            Content::Reasoning(reasoning) => {
                self.text(&reasoning.text);
                self.optional(&reasoning.sealed);
            }
            Content::ToolCall(call) => {
                self.text(&call.name);
                self.text(&call.arguments);
            }
            Content::ToolResult(result) => {
                for content in &result.content {
                    match content {
                        ToolContent::Text(text) => self.text(text),
                        ToolContent::Image(image) => self.image(image, attached),
                        ToolContent::File(file) => self.file(file, attached),
                        ToolContent::Opaque(opaque) => self.text(&opaque.json),
                    }
                }
            }
            Content::Opaque(opaque) => self.text(&opaque.json),
        }
    }

    fn tool(&mut self, tool: &ToolKind) {
        match tool {
            ToolKind::Function(function) => {
                self.text(&function.name);
                self.optional(&function.description);
                self.text(&function.input_schema);
            }
            ToolKind::BuiltIn(tool) => {
                self.hosted_tool(tool);
                self.text(&tool.kind);
                self.optional(&tool.name);
                self.text(&tool.configuration);
            }
            ToolKind::Custom(tool) => {
                self.text(&tool.name);
                self.optional(&tool.description);
                self.optional(&tool.format);
            }
        }
    }

    /// Adds the uses of a built-in tool, unless the client runs it.
    fn hosted_tool(&mut self, tool: &BuiltInTool) {
        #[derive(Default, Deserialize)]
        struct ToolLimits {
            max_uses: Option<u64>,
        }
        if hosted::is_run_by_client(&tool.kind) {
            return;
        }
        let limits: ToolLimits = serde_json::from_str(&tool.configuration).unwrap_or_default();
        let uses = limits.max_uses.unwrap_or(ASSUMED_USES).min(MAX_USES);
        self.hosted_uses += uses;
        if hosted::is_search(&tool.kind) {
            self.searches += uses;
        }
    }

    fn text(&mut self, text: &str) {
        self.text_bytes += text.len() as u64;
    }

    fn optional(&mut self, text: &Option<String>) {
        self.text(text.as_deref().unwrap_or_default());
    }

    fn extra(&mut self, fields: &[(String, String)]) {
        for (name, value) in fields {
            self.text(name);
            self.text(value);
        }
    }

    fn image(&mut self, image: &Image, attached: &Attached<'_>) {
        self.images += 1;
        let file = attached.find(&image.source);
        let size = file.and_then(|file| ImageSize::read(&file.data));
        let detail = image.detail.as_deref();
        self.image_tokens += attached.counting.tokens(size, detail);
        self.locator(&image.source);
    }

    fn file(&mut self, file: &File, attached: &mut Attached<'_>) {
        self.optional(&file.name);
        self.optional(&file.title);
        self.optional(&file.context);
        match attached.find(&file.source) {
            Some(Attachment { media_type, data }) if is_text(media_type, data) => {
                self.text_bytes += data.len() as u64;
            }
            found => {
                attached
                    .documents
                    .extend(found.filter(|file| is_document(file)));
                self.uncounted(&file.source, attached);
            }
        }
    }

    /// Adds content whose tokens only its upstream can count.
    fn uncounted(&mut self, source: &Source, attached: &Attached<'_>) {
        self.uncounted_files += 1;
        if let Some(attachment) = attached.find(source) {
            self.uncounted_bytes += attachment.data.len() as u64;
        }
        self.locator(source);
    }

    fn locator(&mut self, source: &Source) {
        if let Source::Url(text) | Source::Id(text) = source {
            self.text(text);
        }
    }
}

/// The attachments of a request, and the count of its images.
struct Attached<'a> {
    attachments: &'a [Attachment],
    counting: ImageCounting,
    /// The documents whose pages weir can count.
    documents: Vec<&'a Attachment>,
}

impl<'a> Attached<'a> {
    fn new(attachments: &'a [Attachment], counting: ImageCounting) -> Self {
        Self {
            attachments,
            counting,
            documents: Vec::new(),
        }
    }

    fn find(&self, source: &Source) -> Option<&'a Attachment> {
        match source {
            Source::Attachment(index) => self.attachments.get(usize::try_from(*index).ok()?),
            _ => None,
        }
    }
}

/// Returns the documents of a request whose pages weir can count: those that [`RequestSize::of`] has not read.
pub fn documents<'a>(request: &ChatRequest, attachments: &'a [Attachment]) -> Vec<&'a Attachment> {
    let counting = ImageCounting {
        family: None,
        max_tokens: 0,
    };
    let mut attached = Attached::new(attachments, counting);
    RequestSize::of_chat(request, &mut attached);
    attached.documents
}

fn is_document(file: &Attachment) -> bool {
    file.media_type == "application/pdf"
}

/// Whether a file is text for its upstream, too, and not a binary format.
fn is_text(media_type: &str, data: &[u8]) -> bool {
    media_type.starts_with("text/")
        && !data.starts_with(b"%PDF")
        && std::str::from_utf8(data).is_ok()
}

/// The received part of a response.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReceivedBytes {
    /// Bytes of text, reasoning, tool calls and all other output of the model.
    pub bytes: u64,
    /// Bytes that a client can read, without sealed ones.
    pub visible_bytes: u64,
    /// Whether the upstream has ended the response. For an incomplete response, the received bytes are a lower bound,
    /// because the report may precede them.
    pub is_whole: bool,
}

/// Returns the reported counts unchanged.
pub fn as_reported(usage: &Usage) -> Billable {
    let tokens = TokenCounts {
        input: usage.input_tokens.unwrap_or(0),
        cache_read: usage.cache_read_tokens.unwrap_or(0),
        cache_write_short: usage.cache_write_short_tokens.unwrap_or(0),
        cache_write_long: usage.cache_write_long_tokens.unwrap_or(0),
        output: usage.output_tokens.unwrap_or(0),
        reasoning: usage.reasoning_tokens.unwrap_or(0),
        audio_input: named(usage, AUDIO_INPUT),
        audio_output: named(usage, AUDIO_OUTPUT),
        image_output: named(usage, IMAGE_OUTPUT),
    };
    Billable {
        tokens,
        input: None,
        images: 0,
        searches: named(usage, WEB_SEARCHES).saturating_add(named(usage, SEARCH_UNITS)),
    }
}

/// Returns the reported counts for a receipt.
pub fn reported_figures(usage: &Usage) -> TierFigures {
    TierFigures {
        units: named(usage, AUDIO_SECONDS),
        ..TierFigures::of_counts(&as_reported(usage))
    }
}

/// Returns the larger of the believed and the reported counts: the usage for which the provider may bill weir. A count
/// beyond every request's is nobody's bill.
pub fn beyond(believed: &Billable, reported: &Usage) -> Billable {
    let seconds = named(reported, AUDIO_SECONDS).min(MAX_REPORTED);
    let input = believed.input.map(|believed| match believed.unit {
        Unit::Seconds => {
            let count = Quantity::new(Unit::Seconds, seconds).count;
            Quantity {
                count: believed.count.max(count),
                ..believed
            }
        }
        _ => believed,
    });
    let reported = as_reported(reported);
    let larger = |believed: u64, reported: u64| believed.max(reported.min(MAX_REPORTED));
    let (ours, theirs) = (believed.tokens, reported.tokens);
    Billable {
        tokens: TokenCounts {
            input: larger(ours.input, theirs.input),
            cache_read: larger(ours.cache_read, theirs.cache_read),
            cache_write_short: larger(ours.cache_write_short, theirs.cache_write_short),
            cache_write_long: larger(ours.cache_write_long, theirs.cache_write_long),
            output: larger(ours.output, theirs.output),
            reasoning: ours.reasoning,
            audio_input: larger(ours.audio_input, theirs.audio_input),
            audio_output: larger(ours.audio_output, theirs.audio_output),
            image_output: larger(ours.image_output, theirs.image_output),
        },
        input,
        images: believed.images,
        searches: larger(believed.searches, reported.searches),
    }
}

/// Returns a reported count by its name; 0 without one.
fn named(usage: &Usage, name: &str) -> u64 {
    let count = usage.other.iter().find(|count| count.name == name);
    count.map_or(0, |count| count.count)
}

/// Checks the reported usage against the data that weir has seen, and fills in missing counts.
pub fn check(
    reported: Option<&Usage>,
    size: &RequestSize,
    model: &ModelLimits,
    received: ReceivedBytes,
) -> CheckedUsage {
    if let Some(units) = size.units {
        let reported = reported.map_or(0, |usage| named(usage, AUDIO_SECONDS));
        let reported = i64::try_from(reported).unwrap_or(i64::MAX);
        // A provider can find more in a compressed recording, which it charges; but not more than the model takes.
        let window = i64::try_from(model.context_window).unwrap_or(i64::MAX);
        let most = match size.may_have_more_units {
            true => units.count.max(window),
            false => units.count,
        };
        let count = units.count.max(reported.min(most));
        let used = Billable {
            input: Some(Quantity { count, ..units }),
            ..Billable::default()
        };
        return CheckedUsage {
            used,
            estimated: false,
            clamped: reported > most,
        };
    }
    let input_max = size.max_input_tokens(model);
    let output_max = model.output_limit + OUTPUT_SLACK_TOKENS;
    let output_min =
        received.visible_bytes.saturating_sub(VISIBLE_BYTES_FREE) / VISIBLE_BYTES_PER_TOKEN;
    // A report of zero tokens for visible data does not count: otherwise, the adapter would serve for free.
    let seen = |count: &u64, bytes: u64| *count > 0 || bytes == 0;
    let reported_input = reported
        .and_then(|usage| usage.input_tokens)
        .filter(|count| seen(count, input_max));
    let reported_output = reported
        .and_then(|usage| usage.output_tokens)
        .filter(|count| seen(count, received.bytes + size.spoken_tokens));
    let input = reported_input.unwrap_or_else(|| {
        size.estimated_tokens()
            + size.page_tokens(model.max_image_tokens, BYTES_PER_TOKEN)
            + size.uncounted_bytes / BYTES_PER_TOKEN
    });
    let estimate = received.bytes.div_ceil(BYTES_PER_TOKEN) + size.spoken_tokens;
    let output = match reported_output {
        Some(reported) if received.is_whole || reported >= estimate => reported,
        _ => estimate,
    };
    let (believed_input, believed_output) =
        (input.min(input_max), output.max(output_min).min(output_max));
    let as_reported = reported.map(as_reported).unwrap_or_default();
    // Each part is clamped to the rest of the earlier ones, so that their sum stays within the total.
    let mut uncached = believed_input;
    let mut of_input = |part| take(&mut uncached, part);
    let mut text = believed_output;
    let mut of_output = |part| take(&mut text, part);
    let parts = as_reported.tokens;
    let audio_input = match size.may_have_audio() {
        true => parts.audio_input,
        false => 0,
    };
    let tokens = TokenCounts {
        cache_read: of_input(parts.cache_read),
        cache_write_short: of_input(parts.cache_write_short),
        cache_write_long: of_input(parts.cache_write_long),
        audio_input: of_input(audio_input),
        input: believed_input,
        audio_output: of_output(parts.audio_output),
        image_output: of_output(parts.image_output),
        output: believed_output,
        reasoning: parts.reasoning.min(believed_output),
    };
    let searches = as_reported.searches.max(size.least_searches);
    let searches = searches.min(size.searches);
    CheckedUsage {
        used: Billable {
            tokens,
            input: None,
            images: 0,
            searches,
        },
        estimated: reported_input.is_none() || reported_output != Some(output),
        clamped: reported_input.is_some_and(|input| input > input_max)
            || reported_output == Some(output) && output != believed_output
            || searches < as_reported.searches,
    }
}

/// Takes up to `part` from a rest.
fn take(rest: &mut u64, part: u64) -> u64 {
    let part = part.min(*rest);
    *rest -= part;
    part
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::file_reader::document_size;
    use crate::image_tokens::ImageFamily;
    use weir_dialects::read_own;
    use weir_errors::ApiError;
    use weir_sandbox::adapter::bindings::chat::NamedCount;

    const SIZE: RequestSize = RequestSize {
        text_bytes: 402,
        messages: 2,
        tools: 1,
        images: 1,
        image_tokens: 100,
        unread_documents: 0,
        pages: 0,
        page_text_bytes: 0,
        uncounted_files: 0,
        uncounted_bytes: 0,
        hosted_uses: 0,
        searches: 0,
        least_searches: 0,
        audio_seconds: 0,
        spoken_tokens: 0,
        units: None,
        may_have_more_units: false,
    };

    const MODEL: ModelLimits = ModelLimits {
        context_window: 8_000,
        max_image_tokens: 100,
        output_limit: 50,
    };

    fn whole(bytes: u64) -> ReceivedBytes {
        ReceivedBytes {
            bytes,
            visible_bytes: bytes,
            is_whole: true,
        }
    }

    fn usage(input: Option<u64>, output: Option<u64>) -> Usage {
        Usage {
            input_tokens: input,
            cache_read_tokens: Some(u64::MAX),
            cache_write_short_tokens: None,
            cache_write_long_tokens: None,
            output_tokens: output,
            reasoning_tokens: Some(u64::MAX),
            images: None,
            other: Vec::new(),
        }
    }

    #[test]
    fn everything_that_a_model_reads_has_a_size() -> Result<(), ApiError> {
        // Each text has its own length, so that no text can stand in for another.
        let text = |power: u32| "x".repeat(1 << power);
        let data = |kind: &str, data: &str| format!("data:{kind};base64,{}", STANDARD.encode(data));
        let png = STANDARD.encode(b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\xc8\0\0\0\xc8");
        let png = format!("data:image/png;base64,{png}");
        let body = serde_json::json!({
            "model": "m",
            "messages": [
                {"role": "user", "name": text(0), "content": [
                    {"type": "text", "text": text(1)},
                    {"type": "image_url", "image_url": {"url": format!("https://a.example/{}", text(6))}},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}},
                    {"type": "image_url", "image_url": {"url": png}},
                    {"type": "file", "file": {"filename": text(2), "file_data": data("application/pdf", PDF)}},
                    {"type": "file", "file": {"file_data": data("application/pdf", "no PDF")}},
                    {"type": "file", "file": {"file_data": data("application/zip", "1234")}},
                    {"type": "file", "file": {"file_data": data("text/csv", &text(10))}},
                    {"type": "file", "file": {"file_data": data("text/plain", PDF)}},
                    {"type": "file", "file": {"file_id": "x".repeat(256)}},
                    {"type": "input_audio", "input_audio": {"data": "AQID", "format": "wav"}},
                ]},
            ],
            "tools": [{"type": "function", "function": {
                "name": text(3), "description": text(4), "parameters": {"a": text(7)}, "strict": true}}],
            "response_format": {"type": "json_schema", "json_schema": {
                "name": text(5), "description": text(8), "schema": {"a": text(9)}, "strict": true}},
        });
        let call = read_own(body.to_string().as_bytes())?;
        let counting = ImageCounting {
            family: Some(ImageFamily::Claude4),
            max_tokens: 1_000,
        };
        let size = RequestSize::of(&call.request, &call.attachments, counting);
        let json_and_url = 2 * r#"{"a":""}"#.len() + "https://a.example/".len();
        assert_eq!(
            size,
            RequestSize {
                text_bytes: 0b111_1111_1111 + 256 + json_and_url as u64,
                messages: 1,
                tools: 1,
                images: 3,
                // 200 × 200 pixels, a URL, and bytes of another kind.
                image_tokens: 64 + 2 * 1_000,
                unread_documents: 2,
                pages: 0,
                page_text_bytes: 0,
                uncounted_files: 6,
                uncounted_bytes: 6 + 4 + 2 * PDF.len() as u64 + 3,
                hosted_uses: 0,
                searches: 0,
                least_searches: 0,
                audio_seconds: 0,
                spoken_tokens: 0,
                units: None,
                may_have_more_units: false,
            }
        );
        let documents = documents(&call.request, &call.attachments).into_iter();
        let documents: Vec<_> = documents
            .map(|file| (file.data.len() as u64, document_size(&file.data)))
            .collect();
        assert_eq!(documents.len(), 2);
        let read = size.with_documents(&documents);
        assert_eq!(
            (read.unread_documents, read.pages, read.uncounted_files),
            (0, 2, 5)
        );
        assert_eq!(read.page_text_bytes, PDF.len() as u64);
        assert_eq!(
            read.uncounted_bytes,
            size.uncounted_bytes - PDF.len() as u64
        );
        assert_eq!(size.without_unread_documents().uncounted_files, 4);
        Ok(())
    }

    /// A document of two pages.
    const PDF: &str = "%PDF-1.4 << /Pages 2 0 R >> << /Type /Pages /Kids [3 0 R 4 0 R] /Count 1 >> << /Type /Page >>";

    #[test]
    fn estimates_and_bounds_follow_the_bytes() {
        assert_eq!(SIZE.estimated_tokens(), 101 + 100);
        let text = 2 * (201 + 32 + 64 + 512 + 100);
        let with = |change: fn(&mut RequestSize)| {
            let mut size = SIZE;
            change(&mut size);
            size.max_input_tokens(&MODEL)
        };
        assert_eq!(with(|_| {}), text);
        assert_eq!(with(|size| size.pages = 2), text + 2 * 2 * 1_100);
        // A page with much text: a token for each byte.
        let dense = |size: &mut RequestSize| (size.pages, size.page_text_bytes) = (1, 5_000);
        assert_eq!(with(dense), text + 2 * 100 + 5_000);
        // Files fill the window, but not more.
        assert_eq!(with(|size| size.pages = 4), 8_000);
        assert_eq!(with(|size| size.uncounted_files = 1), 8_000);
        assert_eq!(with(|size| size.uncounted_files = 9), 8_000);
        let long = with(|size| (size.text_bytes, size.uncounted_files) = (9_000, 1));
        assert_eq!(long, 9_000 + 2 * (32 + 64 + 512 + 100));
    }

    #[test]
    fn results_of_tools_that_the_provider_runs_are_input() -> Result<(), ApiError> {
        let sized = |tools: serde_json::Value| {
            // The provider of this dialect ignores the last field.
            let body = serde_json::json!({
                "model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}], "tools": tools,
                "max_tool_calls": 1,
            });
            let call = weir_dialects::anthropic_messages::read(
                body.to_string().as_bytes(),
                &http::HeaderMap::new(),
            )?;
            let counting = ImageCounting {
                family: None,
                max_tokens: 0,
            };
            let size = RequestSize::of(&call.request, &call.attachments, counting);
            Ok::<_, ApiError>((size.hosted_uses, size.searches))
        };
        let web = serde_json::json!({"type": "web_search_20250305", "name": "web_search"});
        let limited = serde_json::json!({
            "type": "web_search_20250305", "name": "web_search", "max_uses": 3,
        });
        let code = serde_json::json!({"type": "code_execution_20250825", "name": "code_execution"});
        let bash = serde_json::json!({"type": "bash_20250124", "name": "bash"});
        let many = serde_json::json!({
            "type": "web_fetch_20250910", "name": "web_fetch", "max_uses": 1_000,
        });
        assert_eq!(sized(serde_json::json!([bash]))?, (0, 0));
        assert_eq!(sized(serde_json::json!([web]))?, (10, 10));
        assert_eq!(sized(serde_json::json!([limited]))?, (3, 3));
        assert_eq!(sized(serde_json::json!([limited, code]))?, (13, 3));
        // Each tool has its own limit at the provider.
        assert_eq!(sized(serde_json::json!([limited, many]))?, (1_003, 3));
        let used = RequestSize {
            hosted_uses: 1,
            ..RequestSize::default()
        };
        let model = ModelLimits {
            context_window: 1_000_000,
            ..MODEL
        };
        assert_eq!(used.max_input_tokens(&model), 2 * 8_192);
        let used = RequestSize {
            hosted_uses: 1_000,
            ..used
        };
        assert_eq!(used.max_input_tokens(&model), 1_000_000);
        Ok(())
    }

    #[test]
    fn counts_with_their_own_price_are_within_what_the_request_allows() {
        let mut reported = usage(Some(100), Some(50));
        reported.cache_read_tokens = Some(30);
        let count = |name: &str, count| NamedCount {
            name: name.to_owned(),
            count,
        };
        reported.other = vec![
            count("audio-input-tokens", 80),
            count("audio-output-tokens", 40),
            count("image-output-tokens", 20),
            count("web-searches", 7),
            count("unknown", 1),
        ];
        let counted = |size: &RequestSize| {
            let checked = check(Some(&reported), size, &MODEL, whole(10));
            let TokenCounts {
                audio_input,
                audio_output,
                image_output,
                ..
            } = checked.used.tokens;
            let searches = checked.used.searches;
            (
                [audio_input, audio_output, image_output, searches],
                checked.clamped,
            )
        };
        assert_eq!(counted(&SIZE), ([0, 40, 10, 0], true));
        let with_audio = RequestSize {
            uncounted_files: 1,
            searches: 7,
            ..SIZE
        };
        assert_eq!(counted(&with_audio), ([70, 40, 10, 7], false));
        let fewer = RequestSize {
            searches: 5,
            ..with_audio
        };
        assert_eq!(counted(&fewer), ([70, 40, 10, 5], true));
    }

    #[test]
    fn reported_usage_is_clamped_to_what_the_host_has_seen() {
        let reported = usage(Some(u64::MAX), Some(u64::MAX));
        let checked = check(Some(&reported), &SIZE, &MODEL, whole(8));
        assert_eq!(checked.used.tokens.input, 2 * 909);
        assert_eq!(checked.used.tokens.cache_read, 2 * 909);
        assert_eq!(checked.used.tokens.output, 114);
        assert_eq!(checked.used.tokens.reasoning, 114);
        assert!(checked.clamped && !checked.estimated);
    }

    #[test]
    fn the_cost_of_a_clamped_report_is_bounded_and_at_least_what_is_believed() {
        let mut reported = usage(Some(u64::MAX), None);
        reported.cache_read_tokens = Some(7);
        let believed = check(Some(&reported), &SIZE, &MODEL, whole(400)).used;
        let beyond = beyond(&believed, &reported);
        assert_eq!(beyond.tokens.input, 10_000_000);
        assert_eq!(beyond.tokens.cache_read, 7);
        assert_eq!(beyond.tokens.output, believed.tokens.output);
        assert!(believed.tokens.output > 0);
    }

    #[test]
    fn long_runs_make_long_tokens_and_no_longer_ones() {
        let model = ModelLimits {
            output_limit: 10_000,
            ..MODEL
        };
        let output = |reported, visible_bytes| {
            let received = ReceivedBytes {
                bytes: 33_792,
                visible_bytes,
                is_whole: true,
            };
            let checked = check(
                Some(&usage(Some(7), Some(reported))),
                &SIZE,
                &model,
                received,
            );
            assert!(!checked.estimated);
            (checked.used.tokens.output, checked.clamped)
        };
        assert_eq!(output(2_048, 1_024 + 32_768), (2_048, false));
        assert_eq!(output(1, 1_024 + 32_768), (2_048, true));
        // Sealed bytes cannot be counted.
        assert_eq!(output(1, 1_024), (1, false));
    }

    #[test]
    fn absent_usage_is_estimated_from_bytes() {
        let check =
            |reported: Option<Usage>, received| check(reported.as_ref(), &SIZE, &MODEL, received);
        let checked = check(None, whole(9));
        assert_eq!(
            (checked.used.tokens.input, checked.used.tokens.output),
            (201, 3)
        );
        assert!(checked.estimated && !checked.clamped);
        let half = check(Some(usage(Some(7), None)), whole(9));
        assert_eq!((half.used.tokens.input, half.used.tokens.output), (7, 3));
        assert!(half.estimated);
        let zero = check(Some(usage(Some(0), Some(0))), whole(9));
        assert_eq!((zero.used.tokens.input, zero.used.tokens.output), (201, 3));
        assert!(zero.estimated);
        let empty = check(Some(usage(Some(7), Some(0))), whole(0));
        assert_eq!((empty.used.tokens.input, empty.used.tokens.output), (7, 0));
        assert!(!empty.estimated);
        let cut = ReceivedBytes {
            is_whole: false,
            ..whole(40)
        };
        let early = check(Some(usage(Some(7), Some(1))), cut);
        assert_eq!((early.used.tokens.output, early.estimated), (10, true));
        let late = check(Some(usage(Some(7), Some(20))), cut);
        assert_eq!((late.used.tokens.output, late.estimated), (20, false));
    }
}
