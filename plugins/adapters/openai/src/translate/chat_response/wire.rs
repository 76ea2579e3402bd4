//! The wire types of a response, parsed leniently.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// One event of a stream.
#[derive(Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) model: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) choices: Option<Vec<ChunkChoice<'a>>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    /// Perplexity's field.
    #[serde(borrow)]
    pub(super) search_results: Option<&'a RawValue>,
    /// Perplexity's older field, and xAI's: only URLs.
    #[serde(borrow)]
    pub(super) citations: Option<&'a RawValue>,
    /// Groq's field, which has its usage if `usage` is absent.
    #[serde(borrow)]
    pub(super) x_groq: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct ChunkChoice<'a> {
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    /// Some servers' name of the delta.
    #[serde(borrow)]
    pub(super) message: Option<Delta<'a>>,
    /// The content in Completions.
    pub(super) text: Option<String>,
    #[serde(borrow)]
    pub(super) logprobs: Option<&'a RawValue>,
    pub(super) finish_reason: Option<String>,
    /// Moonshot's field of usage.
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    /// OpenRouter's field, for an upstream of its own that failed.
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// A non-streamed response.
#[derive(Deserialize)]
pub(super) struct ChatCompletion<'a> {
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) model: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) choices: Option<Vec<CompletionChoice<'a>>>,
    #[serde(borrow)]
    pub(super) search_results: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) citations: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct CompletionChoice<'a> {
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    pub(super) message: Option<Delta<'a>>,
    /// The content in Completions.
    pub(super) text: Option<String>,
    #[serde(borrow)]
    pub(super) logprobs: Option<&'a RawValue>,
    pub(super) finish_reason: Option<String>,
    /// The field of the reason in OpenAI's first vision models.
    pub(super) finish_details: Option<FinishDetails>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct FinishDetails {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
}

/// The content of a chunk, or of a complete message.
#[derive(Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(default)]
    pub(super) content: MessageText,
    #[serde(default)]
    pub(super) refusal: MessageText,
    /// The name in most compatible servers; `reasoning` is the other.
    #[serde(default)]
    pub(super) reasoning_content: MessageText,
    #[serde(default)]
    pub(super) reasoning: MessageText,
    /// OpenRouter's field, beside the above or alone.
    #[serde(borrow)]
    pub(super) reasoning_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) annotations: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<ToolCallDelta<'a>>>,
    #[serde(borrow)]
    pub(super) function_call: Option<FunctionDelta<'a>>,
}

/// The log probabilities of a text's and a refusal's tokens.
#[derive(Default)]
pub(super) struct Logprobs<'a> {
    pub(super) content: Vec<&'a RawValue>,
    pub(super) refusal: Vec<&'a RawValue>,
}

/// Parses `logprobs` leniently: they are an addition, and an unreadable value must not cost the response.
pub(super) fn logprobs(raw: &RawValue) -> Logprobs<'_> {
    #[derive(Deserialize)]
    struct WireLogprobs<'a> {
        #[serde(borrow)]
        content: Option<Vec<&'a RawValue>>,
        #[serde(borrow)]
        refusal: Option<Vec<&'a RawValue>>,
    }
    let parsed: Option<WireLogprobs<'_>> = serde_json::from_str(raw.get()).ok();
    parsed.map_or_else(Logprobs::default, |parsed| Logprobs {
        content: parsed.content.unwrap_or_default(),
        refusal: parsed.refusal.unwrap_or_default(),
    })
}

/// An entry of `reasoning_details`.
pub(super) struct ReasoningDetail<'a> {
    /// A text or a summary.
    pub(super) text: String,
    pub(super) signature: Option<String>,
    /// The complete entry, if it is encrypted: its upstream can decrypt it only with its format and its id.
    pub(super) sealed: Option<&'a RawValue>,
}

/// Parses `reasoning_details` leniently.
pub(super) fn reasoning_details(raw: &RawValue) -> Vec<ReasoningDetail<'_>> {
    #[derive(Deserialize)]
    struct WireReasoningDetail {
        text: Option<String>,
        summary: Option<String>,
        signature: Option<String>,
        data: Option<String>,
    }
    // An unreadable entry must not cost the rest.
    let reasoning_details: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
    let reasoning_details = reasoning_details.into_iter().filter_map(|raw| {
        let detail: WireReasoningDetail = serde_json::from_str(raw.get()).ok()?;
        let has_text = |text: &String| !text.is_empty();
        Some(ReasoningDetail {
            text: detail.text.or(detail.summary).unwrap_or_default(),
            signature: detail.signature.filter(has_text),
            sealed: detail.data.filter(has_text).map(|_| raw),
        })
    });
    reasoning_details.collect()
}

#[derive(Default, Deserialize)]
pub(super) struct ToolCallDelta<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: Option<String>,
    #[serde(borrow)]
    pub(super) function: Option<FunctionDelta<'a>>,
    pub(super) custom: Option<CustomDelta>,
    /// Google's field.
    #[serde(borrow)]
    extra_content: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
pub(super) struct FunctionDelta<'a> {
    pub(super) name: Option<String>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct CustomDelta {
    pub(super) name: Option<String>,
    pub(super) input: Option<String>,
}

impl<'a> ToolCallDelta<'a> {
    pub(super) fn from_function(function: FunctionDelta<'a>) -> Self {
        Self {
            function: Some(function),
            ..Self::default()
        }
    }

    /// Returns the signature of the call. It is parsed leniently: an unreadable one must not cost the response.
    pub(super) fn signature(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct ExtraContent {
            google: Option<GoogleContent>,
        }
        #[derive(Deserialize)]
        struct GoogleContent {
            thought_signature: Option<String>,
        }
        let parsed: ExtraContent = serde_json::from_str(self.extra_content?.get()).ok()?;
        let signature = parsed.google?.thought_signature;
        signature.filter(|text| !text.is_empty())
    }
}

impl FunctionDelta<'_> {
    /// Returns whether the call is empty: servers that fill every field of their types in write such calls.
    pub(super) fn is_empty(&self) -> bool {
        let has_arguments = self.arguments.is_some_and(|raw| raw.get() != "\"\"");
        self.name.as_deref().unwrap_or_default().is_empty() && !has_arguments
    }
}

impl CustomDelta {
    /// Returns whether the call is empty, as for a function.
    pub(super) fn is_empty(&self) -> bool {
        let is_empty = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
        is_empty(&self.name) && is_empty(&self.input)
    }
}

#[derive(Deserialize)]
pub(super) struct Annotation {
    pub(super) url_citation: Option<UrlCitation>,
}

/// A source of a complete response.
#[derive(Debug, Deserialize)]
pub(super) struct ResponseSource {
    pub(super) url: String,
    pub(super) title: Option<String>,
}

/// Parses the sources of a complete response leniently: results of a search, or else bare URLs.
pub(super) fn sources(
    search_results: Option<&RawValue>,
    citations: Option<&RawValue>,
) -> Vec<ResponseSource> {
    fn all<T: for<'de> Deserialize<'de>>(raw: Option<&RawValue>) -> Vec<T> {
        let all = raw.and_then(|raw| serde_json::from_str(raw.get()).ok());
        all.unwrap_or_default()
    }
    let results = all::<ResponseSource>(search_results);
    if !results.is_empty() {
        return results;
    }
    let urls = all::<String>(citations).into_iter();
    urls.map(|url| ResponseSource { url, title: None })
        .collect()
}

#[derive(Deserialize)]
pub(super) struct UrlCitation {
    pub(super) url: String,
    pub(super) title: Option<String>,
    /// OpenRouter's field: the text of the page.
    pub(super) content: Option<String>,
    pub(super) start_index: Option<f64>,
    pub(super) end_index: Option<f64>,
}

/// A model's text: a string, null, (Mistral) a list of texts and thoughts, an object with the text in it, or (Cloudflare,
/// for a response with a schema) the object itself. Any other value counts as no text, since an error would cost the
/// rest of the response.
#[derive(Debug, Default)]
pub(super) struct MessageText {
    pub(super) text: String,
    pub(super) reasoning: String,
}

impl<'de> Deserialize<'de> for MessageText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MessageTextVisitor)
    }
}

struct MessageTextVisitor;

impl<'de> Visitor<'de> for MessageTextVisitor {
    type Value = MessageText;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("text")
    }

    fn visit_str<E>(self, text: &str) -> Result<MessageText, E> {
        Ok(MessageText {
            text: text.to_owned(),
            reasoning: String::new(),
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<MessageText, A::Error> {
        let mut message_text = MessageText::default();
        while let Some(part) = parts.next_element::<MessageText>()? {
            message_text.text += &part.text;
            message_text.reasoning += &part.reasoning;
        }
        Ok(message_text)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MessageText, A::Error> {
        let mut message_text = MessageText::default();
        let (mut fields, mut is_part) = (Vec::new(), false);
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            is_part |= matches!(name.as_ref(), "text" | "content" | "thinking" | "type");
            match name.as_ref() {
                "text" | "content" => message_text.text += &map.next_value::<MessageText>()?.text,
                "thinking" => message_text.reasoning += &map.next_value::<MessageText>()?.text,
                _ if is_part => drop(map.next_value::<IgnoredAny>()?),
                name => {
                    let name = serde_json::to_string(name).map_err(A::Error::custom)?;
                    let value = map.next_value::<Box<RawValue>>()?;
                    // A raw value may nest too deep for any reader.
                    serde_json::from_str::<Value>(value.get()).map_err(A::Error::custom)?;
                    fields.push(format!("{name}:{value}"));
                }
            }
        }
        if !is_part {
            message_text.text = format!("{{{}}}", fields.join(","));
        }
        Ok(message_text)
    }

    fn visit_unit<E>(self) -> Result<MessageText, E> {
        Ok(MessageText::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<MessageText, E> {
        Ok(MessageText::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<MessageText, E> {
        Ok(MessageText::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<MessageText, E> {
        Ok(MessageText::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<MessageText, E> {
        Ok(MessageText::default())
    }
}
