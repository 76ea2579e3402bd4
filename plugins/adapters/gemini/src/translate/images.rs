//! A request for an image, which this upstream takes as a chat whose response is an image.

use serde::Serialize;
use weir_sdk::adapter::Failure;
use weir_sdk::chat::{
    ChatRequest, Content, ImageRequest, Message, Part, ReasoningRequest, ResponseFormat, Role,
    ToolChoice,
};
use weir_sdk::wire::refuse;

/// An image has 1,290 tokens; some models think first.
const MAX_OUTPUT_TOKENS: u32 = 4_096;

/// The ratios of width to height that the upstream knows.
const RATIOS: [(u32, u32, &str); 10] = [
    (1, 1, "1:1"),
    (2, 3, "2:3"),
    (3, 2, "3:2"),
    (3, 4, "3:4"),
    (4, 3, "4:3"),
    (4, 5, "4:5"),
    (5, 4, "5:4"),
    (9, 16, "9:16"),
    (16, 9, "16:9"),
    (21, 9, "21:9"),
];

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImageConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    aspect_ratio: Option<&'static str>,
}

impl ImageConfig {
    /// # Errors
    ///
    /// An unsupported ratio of the size.
    pub(super) fn of(image: &ImageRequest) -> Result<Self, Failure> {
        let size = image.size.as_deref().filter(|size| *size != "auto");
        let aspect_ratio = size.map(|size| {
            ratio(size).ok_or_else(|| {
                let known = RATIOS.map(|(_, _, ratio)| ratio).join(", ");
                refuse("size", format!("size: it must be like one of {known}"))
            })
        });
        Ok(Self {
            aspect_ratio: aspect_ratio.transpose()?,
        })
    }
}

fn ratio(size: &str) -> Option<&'static str> {
    let (width, height) = size.split_once('x')?;
    let (width, height): (u32, u32) = (width.parse().ok()?, height.parse().ok()?);
    let mut ratios = RATIOS.into_iter();
    let matching = ratios.find(|(across, down, _)| {
        width > 0 && u64::from(width) * u64::from(*down) == u64::from(height) * u64::from(*across)
    });
    matching.map(|(_, _, ratio)| ratio)
}

/// Returns the chat that requests the image.
///
/// # Errors
///
/// A field that the upstream does not support, by its name.
pub(super) fn as_chat(image: &ImageRequest) -> Result<ChatRequest, Failure> {
    let is_set = |value: &Option<String>| value.as_ref().is_some_and(|value| value != "auto");
    let is_unsupported_type = |media_type: &String| media_type != "image/png";
    let unsupported = [
        (image.count != 1, "n"),
        (image.mask.is_some(), "mask"),
        (is_set(&image.quality), "quality"),
        (is_set(&image.background), "background"),
        (
            image.media_type.as_ref().is_some_and(is_unsupported_type),
            "output_format",
        ),
    ];
    if let Some((_, name)) = unsupported.iter().find(|(is_set, _)| *is_set) {
        return Err(refuse(name, *name));
    }
    let mut contents: Vec<_> = image.inputs.iter().cloned().map(Content::Image).collect();
    contents.push(Content::Text(image.prompt.clone()));
    let part = |content| Part {
        content,
        cache: None,
        signature: None,
        provider: None,
        extra: Vec::new(),
    };
    // The upstream responds with bytes, all at once.
    let is_default = |name: &str, json: &str| {
        (name, json) == ("response_format", "\"b64_json\"") || name == "partial_images"
    };
    let extra = image.extra.iter();
    Ok(ChatRequest {
        model: image.model.clone(),
        messages: vec![Message {
            role: Role::User,
            name: None,
            parts: contents.into_iter().map(part).collect(),
            extra: Vec::new(),
        }],
        tools: Vec::new(),
        tool_choice: ToolChoice::Auto,
        parallel_tool_calls: None,
        response_format: ResponseFormat::Text,
        reasoning: ReasoningRequest {
            effort: None,
            budget_tokens: None,
            summary: None,
            adaptive: None,
        },
        modalities: vec!["image".to_owned()],
        max_output_tokens: MAX_OUTPUT_TOKENS,
        temperature: None,
        top_p: None,
        top_k: None,
        presence_penalty: None,
        frequency_penalty: None,
        seed: None,
        stop: Vec::new(),
        extra: extra
            .filter(|(name, json)| !is_default(name, json))
            .cloned()
            .collect(),
        stream: false,
    })
}
