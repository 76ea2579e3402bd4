//! Tests of image requests and responses.

use bytes::Bytes;
use serde_json::{Value, json};
use weir_dialects::other::{PlainWriter, StreamWriter};
use weir_dialects::{AnswerHead, BilledUsage};
use weir_errors::ApiError;
use weir_ledger::{Credits, Quantity, TokenCounts};
use weir_sandbox::adapter::bindings::chat::{
    Event, FinishReason, Image, Media, NamedCount, Source, Usage,
};

use super::{ImageCall, ImageOperation, ImageStream, ImagesResponse, form, read};
use crate::schema_tests::{check_events, checked};

fn of_json(body: &Value, made: ImageOperation) -> Result<ImageCall, ApiError> {
    read(body.to_string().as_bytes(), made)
}

/// A form's part: its name, further header fields, its content.
type FormPart<'a> = (&'a str, &'a str, &'a [u8]);

async fn of_form(parts: &[FormPart<'_>]) -> Result<ImageCall, ApiError> {
    let mut body = Vec::new();
    for (name, more, content) in parts {
        let head = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--b--\r\n");
    form::read(Bytes::from(body), "b", ImageOperation::Edit).await
}

fn attached(index: u32) -> Image {
    Image {
        source: Source::Attachment(index),
        detail: None,
    }
}

#[test]
fn all_that_a_request_can_say_is_read() {
    let body = json!({
        "model": "m", "prompt": "a cat", "n": 2, "size": "1024x1024", "quality": "low", "background": "opaque",
        "output_format": "jpeg", "output_compression": 0, "moderation": "low", "response_format": "url", "style": "vivid",
        "input_fidelity": "low", "user": "u", "stream": false, "partial_images": 0, "made_up": {"a": 1},
    });
    let call = of_json(&body, ImageOperation::Generation).expect("it is sound");
    let request = &call.request;
    assert_eq!(
        (&*request.model, &*request.prompt, request.count),
        ("m", "a cat", 2)
    );
    assert_eq!(request.media_type.as_deref(), Some("image/jpeg"));
    assert_eq!(call.client.end_user.as_deref(), Some("u"));
    let mut extra: Vec<_> = request
        .extra
        .iter()
        .map(|(name, json)| format!("{name}={json}"))
        .collect();
    extra.sort();
    assert_eq!(
        extra,
        [
            "input_fidelity=\"low\"",
            "made_up={\"a\":1}",
            "moderation=\"low\"",
            "output_compression=0",
            "response_format=\"url\"",
            "style=\"vivid\"",
            "user=\"u\"",
        ]
    );
}

#[test]
fn each_mistake_names_its_field() {
    let png = "data:image/png;base64,AAAA";
    let many = json!(vec![json!({ "image_url": png }); 17]);
    for (made, field, value, param) in [
        (ImageOperation::Generation, "model", json!(""), "model"),
        (ImageOperation::Generation, "model", Value::Null, "model"),
        (ImageOperation::Generation, "prompt", json!(""), "prompt"),
        (ImageOperation::Generation, "prompt", Value::Null, "prompt"),
        (
            ImageOperation::Generation,
            "prompt",
            json!("x".repeat(32_001)),
            "prompt",
        ),
        (ImageOperation::Generation, "n", json!(0), "n"),
        (ImageOperation::Generation, "n", json!(11), "n"),
        (ImageOperation::Generation, "n", json!("1"), "n"),
        (ImageOperation::Generation, "size", json!(""), "size"),
        (
            ImageOperation::Generation,
            "quality",
            json!("x".repeat(33)),
            "quality",
        ),
        (
            ImageOperation::Generation,
            "background",
            json!(1),
            "background",
        ),
        (
            ImageOperation::Generation,
            "output_format",
            json!("gif"),
            "output_format",
        ),
        (
            ImageOperation::Generation,
            "output_compression",
            json!(101),
            "output_compression",
        ),
        (
            ImageOperation::Generation,
            "moderation",
            json!("off"),
            "moderation",
        ),
        (
            ImageOperation::Generation,
            "response_format",
            json!("png"),
            "response_format",
        ),
        (
            ImageOperation::Generation,
            "input_fidelity",
            json!("high"),
            "input_fidelity",
        ),
        (ImageOperation::Generation, "style", json!("dull"), "style"),
        (
            ImageOperation::Generation,
            "partial_images",
            json!(1),
            "partial_images",
        ),
        (
            ImageOperation::Generation,
            "user",
            json!("x".repeat(513)),
            "user",
        ),
        (
            ImageOperation::Generation,
            "images",
            json!([{ "image_url": png }]),
            "images",
        ),
        (
            ImageOperation::Generation,
            "mask",
            json!({ "image_url": png }),
            "mask",
        ),
        (ImageOperation::Edit, "style", json!("vivid"), "image"),
        (ImageOperation::Edit, "images", json!([]), "image"),
        (ImageOperation::Edit, "images", many, "images"),
        (
            ImageOperation::Edit,
            "images",
            json!([{}]),
            "images[0].image_url",
        ),
        (
            ImageOperation::Edit,
            "images",
            json!([{ "image_url": "http://a.example" }]),
            "images[0].image_url",
        ),
        (
            ImageOperation::Edit,
            "images",
            json!([{ "image_url": "data:text/plain;base64,AAAA" }]),
            "images[0].image_url",
        ),
        (
            ImageOperation::Edit,
            "images",
            json!([{ "image_url": png, "file_id": "f" }]),
            "images[0].file_id",
        ),
        (
            ImageOperation::Edit,
            "images",
            json!([{ "image_url": png, "x": 1 }]),
            "images[0].x",
        ),
        (ImageOperation::Edit, "mask", json!({}), "mask.image_url"),
    ] {
        let mut body = json!({ "model": "m", "prompt": "a cat" });
        body[field] = value;
        let error = of_json(&body, made).expect_err(param);
        assert_eq!(
            (error.code(), error.param()),
            ("INVALID_REQUEST", Some(param)),
            "{body}"
        );
    }
    let streamed = json!({ "model": "m", "prompt": "a", "stream": true, "n": 2 });
    assert_eq!(
        of_json(&streamed, ImageOperation::Generation)
            .expect_err("n")
            .param(),
        Some("n")
    );
}

#[tokio::test]
async fn a_form_says_the_same_as_json() {
    let parts: &[FormPart<'_>] = &[
        ("model", "", b"m"),
        ("prompt", "", "ein Z\u{fc}gel\r\n--x".as_bytes()),
        ("n", "", b"2"),
        ("output_compression", "", b"7"),
        ("user", "", b"7"),
        (
            "image[]",
            "; filename=\"a.png\"\r\nContent-Type: image/png",
            b"\0\xff\r\n--",
        ),
        (
            "image[]",
            "; filename=\"b\"\r\nContent-Type: application/octet-stream",
            b"\xff\xd8\xff1",
        ),
        ("mask", "; filename=\"m\"", b"\x89PNG"),
    ];
    let call = of_form(parts).await.expect("it is sound");
    let request = &call.request;
    assert_eq!(request.prompt, "ein Z\u{fc}gel\r\n--x");
    assert_eq!(request.count, 2);
    assert_eq!(request.extra.len(), 2);
    assert!(
        request
            .extra
            .contains(&("output_compression".into(), "7".into()))
    );
    assert!(request.extra.contains(&("user".into(), "\"7\"".into())));
    assert_eq!(request.inputs, [attached(0), attached(1)]);
    assert_eq!(request.mask, Some(attached(2)));
    let types: Vec<_> = call
        .attachments
        .iter()
        .map(|one| &*one.media_type)
        .collect();
    assert_eq!(types, ["image/png", "image/jpeg", "image/png"]);
    assert_eq!(call.attachments[0].data, &b"\0\xff\r\n--"[..]);
}

#[tokio::test]
async fn each_mistake_of_a_form_names_its_field() {
    let image: FormPart<'_> = ("image", "\r\nContent-Type: image/png", b"\x89PNG");
    let sound: [FormPart<'_>; 3] = [("model", "", b"m"), ("prompt", "", b"a cat"), image];
    for (more, param) in [
        (("n", "", &b"two"[..]), Some("n")),
        (("stream", "", b"maybe"), Some("stream")),
        (("size", "", b"\xff"), Some("size")),
        (("model", "", b"m"), Some("model")),
        (
            ("image", "\r\nContent-Type: text/plain", b"x"),
            Some("image"),
        ),
        (("image", "\r\nContent-Type: image/png", b""), Some("image")),
        (("mask", "", b"?"), Some("mask")),
        (("", "", b"x"), None),
    ] {
        let mut parts = sound.to_vec();
        parts.push(more);
        let error = of_form(&parts).await.expect_err("a mistake");
        assert_eq!(
            (error.code(), error.param()),
            ("INVALID_REQUEST", param),
            "{more:?}"
        );
    }
    let many = [sound.as_slice(), &[image; 16]].concat();
    assert_eq!(
        of_form(&many).await.expect_err("too many").param(),
        Some("image")
    );
    assert_eq!(
        of_form(&sound[..2]).await.expect_err("none").param(),
        Some("image")
    );
    let masks: [FormPart<'_>; 2] = [("mask", "", b"\x89PNG"); 2];
    let twice = [sound.as_slice(), &masks].concat();
    assert_eq!(
        of_form(&twice).await.expect_err("two").param(),
        Some("mask")
    );
    let many_parts = vec![image; 97];
    assert!(of_form(&many_parts).await.is_err());
    for cut in [
        "",
        "--b",
        "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm",
    ] {
        let cut = form::read(Bytes::from(cut), "b", ImageOperation::Edit).await;
        assert_eq!(cut.expect_err("cut").code(), "INVALID_REQUEST");
    }
}

fn made(data: &[u8], is_preview: bool) -> Event {
    Event::Media(Media {
        media_type: "image/webp".into(),
        data: data.into(),
        bytes_before: None,
        url: None,
        revised_prompt: None,
        is_preview,
    })
}

fn usage() -> Event {
    Event::Usage(Usage {
        input_tokens: Some(10),
        cache_read_tokens: None,
        cache_write_short_tokens: None,
        cache_write_long_tokens: None,
        output_tokens: Some(272),
        reasoning_tokens: None,
        images: Some(1),
        other: vec![NamedCount {
            name: "image-input-tokens".into(),
            count: 4,
        }],
    })
}

fn head() -> AnswerHead {
    AnswerHead {
        id: "1".into(),
        created: 1_700_000_000,
        model: "m".into(),
    }
}

fn billed() -> BilledUsage {
    BilledUsage {
        quantity: Quantity::default(),
        tokens: TokenCounts {
            input: 10,
            output: 272,
            ..TokenCounts::default()
        },
        credits: Credits::from_micro(1_500_000),
    }
}

fn told_usage() -> Value {
    json!({
        "input_tokens": 10, "output_tokens": 272, "total_tokens": 282,
        "input_tokens_details": { "text_tokens": 6, "image_tokens": 4 }, "credits": 1.5,
    })
}

#[test]
fn an_answer_lists_its_images() {
    let mut answer = ImagesResponse::new(&head());
    answer.push(&made(b"lost", false));
    answer.clear();
    let elsewhere = Event::Media(Media {
        media_type: "image/png".into(),
        data: Vec::new(),
        bytes_before: None,
        url: Some("https://a.example/1.png".into()),
        revised_prompt: Some("A cat.".into()),
        is_preview: false,
    });
    for event in [
        elsewhere,
        made(b"hi", true),
        made(b"hello", false),
        usage(),
        Event::Finish(FinishReason::Stop),
    ] {
        answer.push(&event);
    }
    let body: Value = checked("ImagesAnswer", &Box::new(answer).into_body(&billed()));
    assert_eq!(
        body,
        json!({
            "created": 1_700_000_000,
            "data": [{ "url": "https://a.example/1.png", "revised_prompt": "A cat." }, { "b64_json": "aGVsbG8=" }],
            "output_format": "webp",
            "usage": told_usage(),
        })
    );
}

#[test]
fn a_stream_keeps_the_image_back_until_it_is_paid_for() {
    for (kind, noun) in [
        (ImageOperation::Generation, "image_generation"),
        (ImageOperation::Edit, "image_edit"),
    ] {
        let mut chunks = ImageStream::new(&head(), kind);
        let mut out = Vec::new();
        for event in [
            made(b"h", true),
            made(b"he", true),
            made(b"hello", false),
            usage(),
            Event::Finish(FinishReason::Stop),
        ] {
            chunks.event(&event, &mut out);
        }
        let before = out.len();
        chunks.finish(&billed(), &mut out);
        check_events("ImageEvent", &out);
        let read = |bytes: &[u8]| -> Vec<(String, Value)> {
            let text = std::str::from_utf8(bytes).expect("UTF-8");
            let events = text.split_terminator("\n\n").map(|event| {
                let (name, data) = event.split_once("\ndata: ").expect("a name and data");
                let name = name.strip_prefix("event: ").expect("a name");
                (name.to_owned(), serde_json::from_str(data).expect("JSON"))
            });
            events.collect()
        };
        let preview = |index: u32, data: &str| {
            let name = format!("{noun}.partial_image");
            let event = json!({
                "type": name, "b64_json": data, "partial_image_index": index, "created_at": 1_700_000_000,
                "output_format": "webp",
            });
            (name, event)
        };
        assert_eq!(
            read(&out[..before]),
            [preview(0, "aA=="), preview(1, "aGU=")]
        );
        let name = format!("{noun}.completed");
        let whole = json!({
            "type": name, "b64_json": "aGVsbG8=", "created_at": 1_700_000_000, "output_format": "webp",
            "usage": told_usage(),
        });
        assert_eq!(read(&out[before..]), [(name, whole)]);
    }
}
