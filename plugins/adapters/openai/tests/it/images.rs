//! Images: the requests to the upstream, and the events of responses.

use weir_adapter_openai::translate::OpenAi;
use weir_sdk::adapter::{Event, Failure, FailureKind, Request, Setting, Task};
use weir_sdk::chat::{Image, ImageRequest, Source};
use weir_sdk::testing::{
    EVENT_STREAM, JSON, SentRequest, image_bytes, image_request, lines, pair, receive_for,
    request_of,
};

fn of(image: ImageRequest) -> Request {
    request_of(Task::Image(image))
}

fn send(image: ImageRequest) -> Result<SentRequest, Failure> {
    send_with(image, &[])
}

fn send_with(image: ImageRequest, options: &[Setting]) -> Result<SentRequest, Failure> {
    weir_sdk::testing::send::<OpenAi>(of(image), options)
}

fn refused_field(image: ImageRequest) -> String {
    let failure = send(image).expect_err("a refusal");
    assert_eq!(failure.kind, FailureKind::Unsupported);
    failure.param.expect("a field to blame")
}

fn gpt(prompt: &str) -> ImageRequest {
    ImageRequest {
        model: "gpt-image-1".to_owned(),
        ..image_request(prompt)
    }
}

fn attached(index: u32) -> Image {
    Image {
        source: Source::Attachment(index),
        detail: None,
    }
}

fn with_extra(image: ImageRequest, extra: &[(&str, &str)]) -> ImageRequest {
    ImageRequest {
        extra: extra.iter().map(|(name, json)| pair(name, json)).collect(),
        ..image
    }
}

#[test]
fn asks_for_images_with_all_that_was_said_about_them() {
    let image = ImageRequest {
        count: 3,
        size: Some("1024x1024".to_owned()),
        quality: Some("low".to_owned()),
        background: Some("transparent".to_owned()),
        media_type: Some("image/webp".to_owned()),
        stream: true,
        ..gpt("a \"cat\"")
    };
    let extra = [
        ("output_compression", "50"),
        ("moderation", "\"low\""),
        ("partial_images", "2"),
        ("response_format", "\"b64_json\""),
        ("user", "\"u-1\""),
        ("metadata", "{}"),
    ];
    let sent = send(with_extra(image, &extra)).expect("it can be asked");
    assert_eq!(sent.path, "/images/generations");
    assert_eq!(
        sent.text,
        r#"{"model":"gpt-image-1","prompt":"a \"cat\"","n":3,"size":"1024x1024","quality":"low","background":"transparent","output_format":"webp","stream":true,"output_compression":50,"moderation":"low","partial_images":2,"user":"u-1"}"#
    );
    assert_eq!(sent.ignored, ["metadata"]);
}

#[test]
fn what_only_some_models_know_goes_to_those() {
    let dalle = ImageRequest {
        model: "dall-e-3".to_owned(),
        stream: true,
        ..image_request("a cat")
    };
    let extra = [
        ("response_format", "\"url\""),
        ("style", "\"vivid\""),
        ("partial_images", "1"),
    ];
    let sent = send(with_extra(dalle, &extra)).expect("it can be asked");
    assert_eq!(
        sent.text,
        r#"{"model":"dall-e-3","prompt":"a cat","n":1,"response_format":"url","style":"vivid"}"#
    );
    assert_eq!(sent.ignored, ["partial_images"]);
    let url = with_extra(gpt("a cat"), &[("response_format", "\"url\"")]);
    assert_eq!(refused_field(url), "response_format");
    assert_eq!(
        refused_field(with_extra(gpt("a"), &[("steps", "4")])),
        "steps"
    );
    let passed = with_extra(gpt("a"), &[("steps", "4")]);
    let sent = send_with(passed, &[pair("pass-fields", "steps")]).expect("it passes");
    assert_eq!(sent.body["steps"], 4);
}

#[test]
fn the_end_user_goes_where_the_operator_says() {
    let mut request = of(gpt("a cat"));
    request.client.end_user = Some("u-7".to_owned());
    for (field, expected) in [("user", "u-7"), ("safety_identifier", "u-7")] {
        let options = [pair("end-user-field", field)];
        let sent = weir_sdk::testing::send::<OpenAi>(request.clone(), &options);
        assert_eq!(sent.expect("it can be asked").body[field], expected);
    }
    let options = [pair("end-user-field", "none")];
    let sent = weir_sdk::testing::send::<OpenAi>(request, &options).expect("it can be asked");
    assert!(sent.body.get("user").is_none());
}

#[test]
fn an_edit_is_a_form_that_the_host_puts_the_images_into() {
    let image = ImageRequest {
        inputs: vec![attached(0), attached(1)],
        mask: Some(attached(0)),
        size: Some("auto".to_owned()),
        ..gpt("a\r\ncat")
    };
    let sent = send(with_extra(image, &[("output_compression", "50")])).expect("it can be asked");
    assert_eq!(sent.path, "/images/edits");
    let boundary = "weir-form-9c3e51d0a7b84f26-0-";
    let content_type = format!("multipart/form-data; boundary={boundary}");
    assert_eq!(sent.headers, [pair("content-type", &content_type)]);
    let field = |name: &str, value: &str| {
        format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        )
    };
    let file = |name: &str, file: &str, media_type: &str, index: u32| {
        format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{file}\"\r\n\
             Content-Type: {media_type}\r\n\r\n[{index}]\r\n"
        )
    };
    let fields = [
        field("model", "gpt-image-1"),
        field("prompt", "a\r\ncat"),
        field("n", "1"),
        field("size", "auto"),
        field("output_compression", "50"),
    ];
    let files = [
        file("image[]", "image.png", "image/png", 0),
        file("image[]", "image.pdf", "application/pdf", 1),
        file("mask", "image.png", "image/png", 0),
    ];
    for part in fields.iter().chain(&files) {
        assert!(sent.text.contains(part.as_str()), "{part} in {}", sent.text);
    }
    let end = format!("--{boundary}--\r\n");
    assert!(sent.text.ends_with(&end));
    let all = fields.iter().chain(&files).map(String::len).sum::<usize>();
    assert_eq!(sent.text.len(), all + end.len());
}

#[test]
fn a_form_of_one_image_names_it_so_and_no_text_breaks_out_of_it() {
    let prompt = "--weir-form-9c3e51d0a7b84f26-0-\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\n9\r\n";
    let image = ImageRequest {
        inputs: vec![attached(0)],
        ..gpt(prompt)
    };
    let sent = send(image).expect("it can be asked");
    assert!(
        sent.text.contains("name=\"image\"; filename"),
        "{}",
        sent.text
    );
    assert!(sent.text.starts_with("--weir-form-9c3e51d0a7b84f26-1-\r\n"));
    assert_eq!(
        sent.text.matches("weir-form-9c3e51d0a7b84f26-1-").count(),
        5
    );
}

#[test]
fn images_that_are_elsewhere_go_as_json() {
    let remote = Image {
        source: Source::Url("https://example.com/a.png".to_owned()),
        detail: None,
    };
    let image = ImageRequest {
        inputs: vec![remote, attached(0)],
        mask: Some(Image {
            source: Source::Id("file-1".to_owned()),
            detail: None,
        }),
        ..gpt("a cat")
    };
    let sent = send(image).expect("it can be asked");
    assert_eq!(sent.path, "/images/edits");
    assert_eq!(
        sent.text,
        r#"{"images":[{"image_url":"https://example.com/a.png"},{"image_url":"data:image/png;base64,<0>"}],"mask":{"file_id":"file-1"},"model":"gpt-image-1","n":1,"prompt":"a cat"}"#
    );
    let mask = ImageRequest {
        mask: Some(attached(0)),
        ..gpt("a cat")
    };
    assert_eq!(refused_field(mask), "mask");
}

/// Returns a response's events as lines, equal for all piece sizes, and the events of the response in one piece.
fn read(headers: &[(&str, &str)], answer: &str) -> (Vec<String>, Vec<Event>) {
    let receive = |piece_bytes: usize| {
        let task = Task::Image(ImageRequest {
            stream: true,
            ..gpt("a cat")
        });
        let pieces = answer.as_bytes().chunks(piece_bytes);
        let (events, result) = receive_for::<OpenAi>(task, 200, headers, pieces);
        assert_eq!(result, Ok(()), "{:?}", lines(&events));
        events
    };
    let events = receive(answer.len());
    let whole = lines(&events);
    for piece_bytes in 1..100 {
        assert_eq!(
            lines(&receive(piece_bytes)),
            whole,
            "in pieces of {piece_bytes}"
        );
    }
    (whole, events)
}

#[test]
fn hands_on_images_in_the_answer_and_elsewhere() {
    let answer = r#"{"created":1,"data":[{"b64_json":"iVBORw0KGgo=","revised_prompt":"A cat."},{"url":"https://example.com/a.png","revised_prompt":""},
        {"url":"https://example.com/b.jpeg","mime_type":"image/jpeg"},{"b64_json":"aGVsbG8="}],"usage":{"input_tokens":14,
        "input_tokens_details":{"image_tokens":4,"text_tokens":10},"output_tokens":272,"total_tokens":286}}"#;
    let (said, events) = read(JSON, answer);
    assert_eq!(
        said,
        [
            "media image/png of 8 bytes for \"A cat.\"",
            "media image/png at https://example.com/a.png",
            "media image/jpeg at https://example.com/b.jpeg",
            "media image/png of 5 bytes",
            "usage in=14 out=272 images=4 image-input-tokens=4",
            "finish Stop",
        ]
    );
    let images: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Media(media) => Some(image_bytes(&events, media)),
            _ => None,
        })
        .collect();
    assert_eq!(images[0], b"\x89PNG\r\n\x1a\n");
    assert_eq!(images[3], b"hello");
}

#[test]
fn the_format_is_what_is_said_or_what_the_bytes_are() {
    let answer = r#"{"data":[{"b64_json":"/9j/4AAQ"}]}"#;
    let (said, _) = read(JSON, answer);
    assert_eq!(said[0], "media image/jpeg of 6 bytes");
    let answer = r#"{"data":[{"b64_json":"aGVsbG8="}],"output_format":"webp","usage":{"cost_in_usd_ticks":2}}"#;
    let (said, _) = read(JSON, answer);
    assert_eq!(said[..2], ["media image/webp of 5 bytes", "usage images=1"]);
}

#[test]
fn previews_come_before_the_image_of_a_stream() {
    for noun in ["image_generation", "image_edit"] {
        let stream = format!(
            "event: {noun}.partial_image\ndata: {{\"type\":\"{noun}.partial_image\",\"partial_image_index\":0,\"b64_json\":\"aGVsbG8=\",\"output_format\":\"jpeg\"}}\n\n\
             event: {noun}.completed\ndata: {{\"type\":\"{noun}.completed\",\"b64_json\":\"aGVsbG8gd29ybGQ=\",\"output_format\":\"jpeg\",\"usage\":{{\"input_tokens\":10,\"output_tokens\":372}}}}\n\n"
        );
        let (said, _) = read(EVENT_STREAM, &stream);
        assert_eq!(
            said,
            [
                "preview image/jpeg of 5 bytes",
                "media image/jpeg of 11 bytes",
                "usage in=10 out=372 images=1",
                "finish Stop",
            ]
        );
    }
}

/// The guest does not hold the image: it would exceed its memory.
#[test]
fn an_image_of_any_size_passes_through() {
    let image = "iVBORw0KGgoA".repeat(2_000_000);
    let answer = format!(r#"{{"data":[{{"b64_json":"{image}"}},{{"b64_json":"aGVsbG8="}}]}}"#);
    let task = Task::Image(gpt("a cat"));
    let pieces = answer.as_bytes().chunks(1 << 16);
    let (events, result) = receive_for::<OpenAi>(task, 200, JSON, pieces);
    assert_eq!(result, Ok(()));
    assert_eq!(lines(&events)[0], "media image/png of 18000000 bytes");
    for event in &events {
        if let Event::MediaBytes(piece) = event {
            assert!(piece.data.len() <= 1 << 16);
        }
    }
}

#[test]
fn refusals_and_broken_answers_are_told_apart() {
    let fail = |status, headers: &[(&str, &str)], body: &str| {
        let task = Task::Image(ImageRequest {
            stream: true,
            ..gpt("a cat")
        });
        let (_, result) = receive_for::<OpenAi>(task, status, headers, [body.as_bytes()]);
        result.expect_err("it is no answer")
    };
    let error = |kind: &str, code: &str| {
        format!(r#"{{"error":{{"message":"no","type":"{kind}","param":"size","code":"{code}"}}}}"#)
    };
    for (status, code, kind) in [
        (400, "moderation_blocked", FailureKind::Filtered),
        (400, "content_policy_violation", FailureKind::Filtered),
        (400, "invalid_value", FailureKind::Rejected),
        (429, "rate_limit_exceeded", FailureKind::RateLimited),
    ] {
        let failure = fail(status, JSON, &error("image_generation_user_error", code));
        assert_eq!((failure.kind, failure.code.as_deref()), (kind, Some(code)));
        assert_eq!(failure.param.as_deref(), Some("size"));
    }
    let event = format!(
        "event: error\ndata: {}\n\n",
        error("x", "moderation_blocked")
    );
    assert_eq!(fail(200, EVENT_STREAM, &event).kind, FailureKind::Filtered);
    let preview = "data: {\"type\":\"image_generation.partial_image\",\"b64_json\":\"aGk=\"}\n\n";
    for (headers, body) in [
        (EVENT_STREAM, preview),
        (EVENT_STREAM, ""),
        (JSON, r#"{"data":[]}"#),
        (JSON, r#"{"data":[{"b64_json":"aGk="}"#),
        (JSON, r#"{"data":[{"b64_json":""}]}"#),
        (JSON, r#"{"data":[{"b64_json":"a?"}]}"#),
        (JSON, "[]"),
    ] {
        assert_eq!(
            fail(200, headers, body).kind,
            FailureKind::Malformed,
            "{body}"
        );
    }
}
