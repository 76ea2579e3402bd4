//! Tokens: estimated before a request, bounded and checked after it.
//!
//! What an adapter reports is a stranger's word. It is clamped to what the host can see: input to twice
//! the bound of the request, output to the limit that was sent. Where nothing is reported, the host
//! counts bytes; so it does where zero is reported of what it has seen.

use weir_ledger::TokenCounts;
use weir_sandbox::adapter::bindings::chat::{
    ChatRequest, Content, File, Image, Message, ResponseFormat, Source, ToolContent, ToolKind,
    Usage,
};

use super::dialect::Attachment;

/// Bytes of text per token, for estimates. English has about four.
pub const BYTES_PER_TOKEN: u64 = 4;

/// What an answer may report beyond its output limit: some upstreams count a few tokens of framing.
pub const OUTPUT_SLACK_TOKENS: u64 = 64;

/// How large a request is, as seen before it is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestSize {
    /// Bytes of text: messages, file names, tool calls and results, tool definitions, schemas.
    pub text_bytes: u64,
    /// Messages.
    pub messages: u64,
    /// Tool definitions.
    pub tools: u64,
    /// Images and documents, each counted as an image.
    pub images: u64,
    /// Bytes of documents: how many tokens they make, only the upstream knows.
    pub file_bytes: u64,
}

/// Token counts and where they came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedUsage {
    /// The counts to show and to bill.
    pub tokens: TokenCounts,
    /// Whether any of them is the host's own estimate.
    pub estimated: bool,
    /// Whether the adapter reported more than the host believes.
    pub clamped: bool,
}

impl RequestSize {
    /// Measures a request whose images, recordings and documents are in these attachments.
    pub fn of(request: &ChatRequest, attachments: &[Attachment]) -> Self {
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
                size.content(&part.content, attachments);
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
        size
    }

    /// Tokens that the input will have, more or less, documents left aside.
    pub fn estimated_tokens(&self, max_image_tokens: u32) -> u64 {
        self.text_bytes.div_ceil(BYTES_PER_TOKEN) + self.images * u64::from(max_image_tokens)
    }

    /// Tokens that the input will hardly exceed: what a request must be able to pay.
    pub fn bound_tokens(&self, max_image_tokens: u32) -> u64 {
        self.text_bytes / 2
            + 16 * self.messages
            + 64 * self.tools
            + if self.tools > 0 { 512 } else { 0 }
            + self.images * u64::from(max_image_tokens)
            + self.file_bytes / 2
    }

    fn content(&mut self, content: &Content, attachments: &[Attachment]) {
        match content {
            Content::Text(text) | Content::Refusal(text) => self.text(text),
            Content::Image(image) => self.image(image),
            Content::Audio(audio) => self.document(&audio.source, attachments),
            Content::File(file) => self.file(file, attachments),
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
                        ToolContent::Image(image) => self.image(image),
                        ToolContent::File(file) => self.file(file, attachments),
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

    fn image(&mut self, image: &Image) {
        self.images += 1;
        self.locator(&image.source);
    }

    fn file(&mut self, file: &File, attachments: &[Attachment]) {
        self.document(&file.source, attachments);
        self.optional(&file.name);
        self.optional(&file.title);
        self.optional(&file.context);
    }

    /// Something whose tokens only its upstream can count.
    fn document(&mut self, source: &Source, attachments: &[Attachment]) {
        self.images += 1;
        if let Source::Attachment(index) = source {
            let attachment = usize::try_from(*index)
                .ok()
                .and_then(|at| attachments.get(at));
            self.file_bytes += attachment.map_or(0, |attachment| attachment.data.len() as u64);
        }
        self.locator(source);
    }

    fn locator(&mut self, source: &Source) {
        if let Source::Url(text) | Source::Id(text) = source {
            self.text(text);
        }
    }
}

/// Checks what was reported against what the host has seen, and fills in what is missing.
///
/// `received_bytes` are those of text, reasoning and tool arguments in the answer. One that is not whole, since it
/// broke off or was stopped, has at least what was received: what was reported may have come before that.
pub fn check(
    reported: Option<&Usage>,
    size: &RequestSize,
    max_image_tokens: u32,
    output_limit: u32,
    received_bytes: u64,
    is_whole: bool,
) -> CheckedUsage {
    let input_max = 2 * size.bound_tokens(max_image_tokens);
    let output_max = u64::from(output_limit) + OUTPUT_SLACK_TOKENS;
    // Nothing is no count where something was seen: an adapter that reports it serves for free.
    let seen = |count: &u64, bytes: u64| *count > 0 || bytes == 0;
    let reported_input = reported
        .and_then(|usage| usage.input_tokens)
        .filter(|count| seen(count, size.bound_tokens(max_image_tokens)));
    let reported_output = reported
        .and_then(|usage| usage.output_tokens)
        .filter(|count| seen(count, received_bytes));
    let input = reported_input.unwrap_or_else(|| {
        size.estimated_tokens(max_image_tokens) + size.file_bytes / BYTES_PER_TOKEN
    });
    let received = received_bytes.div_ceil(BYTES_PER_TOKEN);
    let output = match reported_output {
        Some(reported) if is_whole || reported >= received => reported,
        _ => received,
    };
    // Parts of the input, each of what the ones before it leave: together they cannot be more than it.
    let mut uncached = input.min(input_max);
    let mut part = |reported: Option<u64>| {
        let part = reported.unwrap_or(0).min(uncached);
        uncached -= part;
        part
    };
    let tokens = TokenCounts {
        cache_read: part(reported.and_then(|usage| usage.cache_read_tokens)),
        cache_write_short: part(reported.and_then(|usage| usage.cache_write_short_tokens)),
        cache_write_long: part(reported.and_then(|usage| usage.cache_write_long_tokens)),
        input: input.min(input_max),
        output: output.min(output_max),
        reasoning: reported
            .and_then(|usage| usage.reasoning_tokens)
            .unwrap_or(0)
            .min(output.min(output_max)),
    };
    CheckedUsage {
        tokens,
        estimated: reported_input.is_none() || reported_output != Some(output),
        clamped: reported_input.is_some_and(|input| input > input_max)
            || reported_output.is_some_and(|output| output > output_max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ApiError;
    use crate::inference::dialect::read_own;

    const SIZE: RequestSize = RequestSize {
        text_bytes: 402,
        messages: 2,
        tools: 1,
        images: 1,
        file_bytes: 0,
    };

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
        // Each text that counts has a length of its own, so that none can stand in for another.
        let text = |power: u32| "x".repeat(1 << power);
        let body = serde_json::json!({
            "model": "m",
            "messages": [
                {"role": "user", "name": text(0), "content": [
                    {"type": "text", "text": text(1)},
                    {"type": "image_url", "image_url": {"url": format!("https://a.example/{}", text(6))}},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}},
                    {"type": "file", "file": {"filename": text(2), "file_data": "data:application/pdf;base64,AQID"}},
                ]},
            ],
            "tools": [{"type": "function", "function": {
                "name": text(3), "description": text(4), "parameters": {"a": text(7)}, "strict": true}}],
            "response_format": {"type": "json_schema", "json_schema": {
                "name": text(5), "description": text(8), "schema": {"a": text(9)}, "strict": true}},
        });
        let call = read_own(body.to_string().as_bytes())?;
        let size = RequestSize::of(&call.request, &call.attachments);
        let json_and_url = 2 * r#"{"a":""}"#.len() + "https://a.example/".len();
        assert_eq!(
            size,
            RequestSize {
                text_bytes: 0b11_1111_1111 + json_and_url as u64,
                messages: 1,
                tools: 1,
                images: 3,
                file_bytes: 3,
            }
        );
        Ok(())
    }

    #[test]
    fn estimates_and_bounds_follow_the_bytes() {
        assert_eq!(SIZE.estimated_tokens(100), 101 + 100);
        assert_eq!(SIZE.bound_tokens(100), 201 + 32 + 64 + 512 + 100);
    }

    #[test]
    fn reported_usage_is_clamped_to_what_the_host_has_seen() {
        let checked = check(
            Some(&usage(Some(u64::MAX), Some(u64::MAX))),
            &SIZE,
            100,
            50,
            8,
            true,
        );
        assert_eq!(checked.tokens.input, 2 * 909);
        assert_eq!(checked.tokens.cache_read, 2 * 909);
        assert_eq!(checked.tokens.output, 114);
        assert_eq!(checked.tokens.reasoning, 114);
        assert!(checked.clamped && !checked.estimated);
    }

    #[test]
    fn absent_usage_is_estimated_from_bytes() {
        let checked = check(None, &SIZE, 100, 50, 9, true);
        assert_eq!((checked.tokens.input, checked.tokens.output), (201, 3));
        assert!(checked.estimated && !checked.clamped);
        let half = check(Some(&usage(Some(7), None)), &SIZE, 100, 50, 9, true);
        assert_eq!((half.tokens.input, half.tokens.output), (7, 3));
        assert!(half.estimated);
        let zero = check(Some(&usage(Some(0), Some(0))), &SIZE, 100, 50, 9, true);
        assert_eq!((zero.tokens.input, zero.tokens.output), (201, 3));
        assert!(zero.estimated);
        let empty = check(Some(&usage(Some(7), Some(0))), &SIZE, 100, 50, 0, true);
        assert_eq!((empty.tokens.input, empty.tokens.output), (7, 0));
        assert!(!empty.estimated);
        let early = check(Some(&usage(Some(7), Some(1))), &SIZE, 100, 50, 40, false);
        assert_eq!((early.tokens.output, early.estimated), (10, true));
        let late = check(Some(&usage(Some(7), Some(20))), &SIZE, 100, 50, 40, false);
        assert_eq!((late.tokens.output, late.estimated), (20, false));
    }
}
