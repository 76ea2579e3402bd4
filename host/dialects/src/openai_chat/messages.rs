//! The messages of a request: translates their parts and other fields.

use weir_sandbox::adapter::bindings::chat::{
    Audio, CacheLifetime, CallKind, Content, File, Image, Message, Opaque, Part, Reasoning, Role,
    Source, ToolCall, ToolContent, ToolResult,
};

use super::wire;
use crate::json::{
    FieldFault, MAX_ID_CHARS, Text, base64_data, check_at_most, check_belongs, check_id,
    check_is_object, check_length, each, is_media_type_name, items, presentable, required,
};
use crate::openai::{called_name, check_file_id, check_file_name, image_source, inline_file};
use crate::proof::{ProvenContent, ReasoningProof};
use crate::thought_signature::ThoughtSignature;
use crate::{Attachment, Attachments, plain};

/// Translates a message; its files go to the attachments.
pub(super) fn message(
    mut message: wire::ChatMessageParam<'_>,
    attachments: &mut Attachments,
) -> Result<Message, FieldFault> {
    let role = match required(message.role.as_ref(), "role")?.as_str() {
        // OpenAI's newer models renamed it; no other API distinguishes the two.
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        "function" => {
            return Err(FieldFault::new(
                "role",
                "must not be function, which is not supported: use tool",
            ));
        }
        _ => {
            return Err(FieldFault::new(
                "role",
                "must be one of system, developer, user, assistant, tool",
            ));
        }
    };
    check_fields_of_role(&message, role)?;
    if let Some(name) = &message.name {
        check_length(name, wire::MAX_NAME_CHARS, "name")?;
    }
    let mut name = message.name.take();
    let extra = std::mem::take(&mut message.others).into_fields();
    let parts = match role {
        Role::System | Role::User => match required(message.content, "content")? {
            wire::ChatContent::Text(text) => vec![plain(Content::Text(text))],
            wire::ChatContent::List(parts) if parts.0.is_empty() => {
                return Err(FieldFault::new("content", "must not be empty"));
            }
            wire::ChatContent::List(parts) => each(parts.0, "content", |part| {
                content_part(part, role, attachments)
            })?,
        },
        Role::Assistant => answer(message, attachments)?,
        Role::Tool => vec![tool_result(message, name.take(), attachments)?],
    };
    Ok(Message {
        role,
        name,
        parts,
        extra,
    })
}

fn check_fields_of_role(
    message: &wire::ChatMessageParam<'_>,
    role: Role,
) -> Result<(), FieldFault> {
    if role != Role::Tool && message.tool_call_id.is_some() {
        return Err(FieldFault::new(
            "tool_call_id",
            "is for messages of the tool role only",
        ));
    }
    let of_assistant = [
        ("tool_calls", message.tool_calls.is_some()),
        ("reasoning_content", message.reasoning_content.is_some()),
        ("reasoning", message.reasoning.is_some()),
        ("reasoning_details", message.reasoning_details.is_some()),
        ("refusal", message.refusal.is_some()),
        ("images", message.images.is_some()),
        (
            "provider_specific_fields",
            message.provider_specific_fields.is_some(),
        ),
        ("annotations", message.annotations.is_some()),
        ("parsed", message.parsed.is_some()),
    ];
    match of_assistant.into_iter().find(|(_, given)| *given) {
        Some((name, _)) if role != Role::Assistant => Err(FieldFault::new(
            name,
            "is for messages of the assistant role only",
        )),
        _ => Ok(()),
    }
}

/// Translates an earlier response, with the fields of weir's own responses: SDKs send a message back unchanged.
fn answer(
    message: wire::ChatMessageParam<'_>,
    attachments: &mut Attachments,
) -> Result<Vec<Part>, FieldFault> {
    let tool_calls = each(items(message.tool_calls), "tool_calls", tool_call)?;
    let images = each(items(message.images), "images", |part| {
        answer_image(part, attachments)
    })?;
    let refusal = message.refusal.filter(|text| !text.is_empty());
    let blocks = message
        .provider_specific_fields
        .and_then(|fields| fields.blocks);
    let mut parts = each(items(blocks), "blocks", opaque_block)
        .map_err(|fault| fault.within("provider_specific_fields"))?;
    // Besides other parts, an empty text has no meaning, and some upstreams reject it.
    let needs_text =
        tool_calls.is_empty() && images.is_empty() && parts.is_empty() && refusal.is_none();
    let details = items(message.reasoning_details);
    let mut details = each(details, "reasoning_details", reasoning_detail)?;
    let proof = take_proof_of_text(&mut details)?;
    // The text is in both fields.
    if details.is_empty() {
        let text = message.reasoning_content.or(message.reasoning);
        parts.extend(text.filter(|text| !text.is_empty()).map(|text| {
            plain(Content::Reasoning(Reasoning {
                text,
                sealed: None,
                id: None,
            }))
        }));
    } else {
        parts.extend(joined(details));
    }
    match message.content {
        Some(wire::ChatContent::Text(text)) if text.is_empty() && !needs_text => {}
        Some(wire::ChatContent::Text(text)) => parts.push(plain(Content::Text(text))),
        Some(wire::ChatContent::List(list)) => {
            parts.append(&mut each(list.0, "content", |part| {
                content_part(part, Role::Assistant, attachments)
            })?);
        }
        None => {}
    }
    if let Some(proof) = proof {
        proof.sign_text(&mut parts);
    }
    parts.extend(refusal.map(|text| plain(Content::Refusal(text))));
    parts.extend(images);
    parts.extend(tool_calls);
    if parts.is_empty() {
        return Err(FieldFault::new("content", "is required without tool_calls"));
    }
    Ok(parts)
}

fn opaque_block(block: wire::OpaqueBlock<'_>) -> Result<Part, FieldFault> {
    let kind = required(block.kind, "kind")?;
    check_length(&kind, wire::MAX_NAME_CHARS, "kind")?;
    let json = required(block.block, "block")?.0;
    check_is_object(json, "block")?;
    let opaque = Opaque {
        kind,
        json: json.to_owned(),
    };
    Ok(Part {
        provider: provider_name(block.provider)?,
        ..plain(Content::Opaque(opaque))
    })
}

fn reasoning_detail(detail: wire::ReasoningDetail<'_>) -> Result<Part, FieldFault> {
    let wire::ReasoningDetail {
        kind,
        text,
        summary,
        signature,
        data,
        id,
        provider,
        ..
    } = detail;
    let kind = required(kind, "type")?;
    let given = [
        ("text", text.is_some()),
        ("summary", summary.is_some()),
        ("data", data.is_some()),
    ];
    let (own, text, sealed) = match kind.as_str() {
        // A signature may stand alone: for hidden reasoning.
        "reasoning.text" if signature.is_some() => ("text", text.unwrap_or_default(), None),
        "reasoning.text" => ("text", required(text, "text")?, None),
        "reasoning.summary" => ("summary", required(summary, "summary")?, None),
        "reasoning.encrypted" => ("data", String::new(), Some(required(data, "data")?)),
        _ => {
            return Err(FieldFault::new(
                "type",
                "must be one of reasoning.text, reasoning.summary, reasoning.encrypted",
            ));
        }
    };
    check_belongs(given, own, "an entry")?;
    if let Some(id) = &id {
        check_at_most(id, MAX_ID_CHARS, "id")?;
    }
    Ok(Part {
        signature: signature.filter(|signature| !signature.is_empty()),
        provider: provider_name(provider)?,
        ..plain(Content::Reasoning(Reasoning { text, sealed, id }))
    })
}

/// Takes the signatures of texts. The content is one text, so the last one is its signature.
fn take_proof_of_text(details: &mut Vec<Part>) -> Result<Option<ReasoningProof>, FieldFault> {
    let mut last = None;
    details.retain(|part| {
        let sealed = match &part.content {
            Content::Reasoning(reasoning) => reasoning.sealed.as_deref(),
            _ => None,
        };
        let proof = sealed.and_then(ReasoningProof::read_own);
        match proof.filter(|proof| proof.of == ProvenContent::Text) {
            Some(proof) => {
                last = Some(proof);
                false
            }
            None => true,
        }
    });
    if let Some(proof) = &last {
        check_at_most(&proof.provider, wire::MAX_NAME_CHARS, "data")
            .map_err(|fault| fault.within("reasoning_details"))?;
    }
    Ok(last)
}

/// Combines entries of `reasoning_details`: an entry without a proof and a sealed entry after it belong to one block.
fn joined(details: Vec<Part>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::with_capacity(details.len());
    for part in details {
        let last = parts.last_mut();
        if !last.is_some_and(|last| take_sealed_form(last, &part)) {
            parts.push(part);
        }
    }
    parts.retain(|part| match &part.content {
        Content::Reasoning(reasoning) => {
            !reasoning.text.is_empty() || reasoning.sealed.is_some() || part.signature.is_some()
        }
        _ => true,
    });
    parts
}

fn take_sealed_form(part: &mut Part, next: &Part) -> bool {
    let (Content::Reasoning(open), Content::Reasoning(sealed)) = (&mut part.content, &next.content)
    else {
        return false;
    };
    let is_one_block = part.signature.is_none()
        && next.signature.is_none()
        && open.sealed.is_none()
        && sealed.sealed.is_some()
        && part.provider == next.provider
        && (open.id == sealed.id || open.id.is_none() || sealed.id.is_none());
    if is_one_block {
        open.sealed.clone_from(&sealed.sealed);
        open.id = open.id.take().or_else(|| sealed.id.clone());
    }
    is_one_block
}

/// Returns the provider's name of a part, from the gateway's configuration.
fn provider_name(provider: Option<String>) -> Result<Option<String>, FieldFault> {
    if let Some(name) = &provider {
        check_length(name, wire::MAX_NAME_CHARS, "provider")?;
    }
    Ok(provider)
}

fn answer_image(
    part: wire::ChatPart<'_>,
    attachments: &mut Attachments,
) -> Result<Part, FieldFault> {
    match &part.kind {
        Some(kind) if kind.as_str() != "image_url" => {
            Err(FieldFault::new("type", "must be image_url"))
        }
        // The roles that may show an image are a rule of `content`; here the image belongs to the response.
        _ => content_part(part, Role::User, attachments),
    }
}

fn tool_call(mut call: wire::ToolCall<'_>) -> Result<Part, FieldFault> {
    let given = [
        ("function", call.function.is_some()),
        ("custom", call.custom.is_some()),
    ];
    let (field, kind) = match call.kind.as_ref().map(Text::as_str) {
        None | Some("function") => ("function", CallKind::Function),
        Some("custom") => ("custom", CallKind::Custom),
        Some(_) => return Err(FieldFault::new("type", "must be one of function, custom")),
    };
    let signature = signature(&mut call);
    let id = required(call.id, "id")?;
    check_id(&id, "id")?;
    check_belongs(given, field, "a call")?;
    let (name, arguments) = match kind {
        CallKind::Function => called_function(required(call.function, field)?),
        CallKind::Custom => called_custom(required(call.custom, field)?),
    }
    .map_err(|fault| fault.within(field))?;
    let mut part = plain(Content::ToolCall(ToolCall {
        id,
        name,
        kind,
        arguments,
    }));
    if let Some(text) = signature {
        let signature = ThoughtSignature::read(text.as_str(), "thought_signature");
        signature
            .map_err(|fault| fault.within("google").within("extra_content"))?
            .sign(&mut part);
    }
    Ok(part)
}

/// Takes the signature of a call, in Google's form or in LiteLLM's.
fn signature<'de>(call: &mut wire::ToolCall<'de>) -> Option<Text<'de>> {
    let google = call.extra_content.take().and_then(|extra| extra.google);
    let of_function = call.function.as_mut();
    let of_function = of_function.and_then(|function| function.provider_specific_fields.take());
    let forms = [google, call.provider_specific_fields.take(), of_function];
    let mut signatures = forms.into_iter().flatten();
    signatures.find_map(|fields| fields.thought_signature)
}

fn called_function(function: wire::CalledFunction<'_>) -> Result<(String, String), FieldFault> {
    let name = called_name(function.name)?;
    Ok((name, required(function.arguments, "arguments")?))
}

fn called_custom(custom: wire::CalledCustom<'_>) -> Result<(String, String), FieldFault> {
    let name = called_name(custom.name)?;
    Ok((name, required(custom.input, "input")?))
}

fn tool_result(
    message: wire::ChatMessageParam<'_>,
    tool_name: Option<String>,
    attachments: &mut Attachments,
) -> Result<Part, FieldFault> {
    let call_id = required(message.tool_call_id, "tool_call_id")?;
    check_id(&call_id, "tool_call_id")?;
    let parts = match required(message.content, "content")? {
        wire::ChatContent::Text(text) => vec![plain(Content::Text(text))],
        wire::ChatContent::List(parts) => each(parts.0, "content", |part| {
            // The vocabulary holds a result as one part, so unknown fields of its inner parts have no place.
            if let Some((name, _)) = part.others.0.first() {
                return Err(FieldFault::new(
                    presentable(name.as_str()),
                    "is not supported",
                ));
            }
            content_part(part, Role::Tool, attachments)
        })?,
    };
    // Therefore, a cached prefix ends with the result or not at all.
    let cache = parts.iter().rev().find_map(|part| part.cache);
    let content = parts
        .into_iter()
        .enumerate()
        .map(|(index, part)| match part.content {
            Content::Text(text) => Ok(ToolContent::Text(text)),
            Content::Image(image) => Ok(ToolContent::Image(image)),
            _ => Err(FieldFault::new("type", "must be one of text, image_url")
                .at(index)
                .within("content")),
        })
        .collect::<Result<_, _>>()?;
    let result = ToolResult {
        call_id,
        tool_name,
        content,
        is_error: false,
    };
    Ok(Part {
        cache,
        ..plain(Content::ToolResult(result))
    })
}

fn content_part(
    part: wire::ChatPart<'_>,
    role: Role,
    attachments: &mut Attachments,
) -> Result<Part, FieldFault> {
    let allowed = match role {
        Role::System => "must be text",
        Role::User => "must be one of text, image_url, input_audio, file",
        Role::Assistant => "must be one of text, refusal",
        Role::Tool => "must be one of text, image_url",
    };
    let wire::ChatPart {
        kind,
        text,
        refusal,
        image_url,
        file,
        input_audio,
        cache_control,
        others,
        ..
    } = part;
    let given = [
        ("text", text.is_some()),
        ("refusal", refusal.is_some()),
        ("image_url", image_url.is_some()),
        ("file", file.is_some()),
        ("input_audio", input_audio.is_some()),
    ];
    let kind = required(kind, "type")?;
    let kind = kind.as_str();
    let content = match kind {
        "text" => Content::Text(required(text, kind)?),
        "refusal" if role == Role::Assistant => Content::Refusal(required(refusal, kind)?),
        "image_url" if matches!(role, Role::User | Role::Tool) => {
            image(required(image_url, kind)?.0, attachments)
                .map(Content::Image)
                .map_err(|fault| fault.within(kind))?
        }
        "file" if role == Role::User => document(required(file, kind)?, attachments)
            .map(Content::File)
            .map_err(|fault| fault.within(kind))?,
        "input_audio" if role == Role::User => recording(required(input_audio, kind)?, attachments)
            .map(Content::Audio)
            .map_err(|fault| fault.within(kind))?,
        _ => return Err(FieldFault::new("type", allowed)),
    };
    check_belongs(given, kind, "a part")?;
    Ok(Part {
        cache: cache_lifetime(cache_control)?,
        extra: others.into_fields(),
        ..plain(content)
    })
}

fn image(image: wire::ImageUrl<'_>, attachments: &mut Attachments) -> Result<Image, FieldFault> {
    Ok(Image {
        source: image_source(required(image.url, "url")?, "url", attachments)?,
        detail: image_detail(image.detail.as_ref())?,
    })
}

fn image_detail(detail: Option<&Text<'_>>) -> Result<Option<String>, FieldFault> {
    match detail.map(Text::as_str) {
        None | Some("auto") => Ok(None),
        Some(word @ ("low" | "high")) => Ok(Some(word.to_owned())),
        Some(_) => Err(FieldFault::new("detail", "must be one of auto, low, high")),
    }
}

fn document(file: wire::File<'_>, attachments: &mut Attachments) -> Result<File, FieldFault> {
    check_file_name(file.filename.as_deref())?;
    let (source, media_type) = match (file.file_id, file.file_data) {
        (Some(_), Some(_)) => {
            return Err(FieldFault::new(
                "file_id",
                "must not be given together with file_data",
            ));
        }
        (Some(id), None) => {
            check_file_id(&id)?;
            (Source::Id(id), None)
        }
        (None, data) => {
            let (source, media_type) = inline_file(required(data, "file_data")?, attachments)?;
            (source, Some(media_type))
        }
    };
    Ok(File {
        source,
        name: file.filename,
        media_type,
        title: None,
        context: None,
        cite: None,
    })
}

fn recording(
    audio: wire::InputAudio<'_>,
    attachments: &mut Attachments,
) -> Result<Audio, FieldFault> {
    let data = required(audio.data, "data")?;
    let format = required(audio.format, "format")?.into_string();
    if !is_media_type_name(&format) {
        return Err(FieldFault::new(
            "format",
            "must be the name of a format, e.g. wav",
        ));
    }
    let source = attachments.add(Attachment {
        media_type: format!("audio/{}", format.to_ascii_lowercase()),
        data: base64_data(data.as_str(), "data")?,
    });
    Ok(Audio {
        source,
        format: Some(format),
    })
}

/// `cache_control` is Anthropic's; clients of several gateways send it in this dialect, too.
pub(super) fn cache_lifetime(
    control: Option<wire::CacheControl<'_>>,
) -> Result<Option<CacheLifetime>, FieldFault> {
    let Some(control) = control else {
        return Ok(None);
    };
    if required(control.kind, "cache_control.type")?.as_str() != "ephemeral" {
        return Err(FieldFault::new("cache_control.type", "must be ephemeral"));
    }
    match control.ttl.as_ref().map(Text::as_str) {
        None | Some("5m") => Ok(Some(CacheLifetime::Short)),
        Some("1h") => Ok(Some(CacheLifetime::Long)),
        Some(_) => Err(FieldFault::new(
            "cache_control.ttl",
            "must be one of 5m, 1h",
        )),
    }
}
