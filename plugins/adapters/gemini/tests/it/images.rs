//! Images: requested directly, and in the response to a chat.

use weir_adapter_gemini::translate::Gemini;
use weir_sdk::adapter::{Event, FailureKind, Request, Task};
use weir_sdk::chat::{Image, ImageRequest, Source};
use weir_sdk::testing::{
    EVENT_STREAM, JSON, image_request, lines, pair, receive_for, request_of, send, streamed,
};

fn of(image: ImageRequest) -> Request {
    request_of(Task::Image(image))
}

#[test]
fn an_image_is_asked_for_in_a_chat_of_one_message() {
    let image = ImageRequest {
        inputs: vec![Image {
            source: Source::Attachment(0),
            detail: None,
        }],
        size: Some("1536x1024".to_owned()),
        quality: Some("auto".to_owned()),
        media_type: Some("image/png".to_owned()),
        extra: vec![
            pair("response_format", "\"b64_json\""),
            pair("partial_images", "2"),
            pair("user", "\"u\""),
        ],
        stream: true,
        ..image_request("make it blue")
    };
    let sent = send::<Gemini>(of(image), &[]).expect("it can be asked");
    assert_eq!(sent.path, "/models/model-1:generateContent");
    assert_eq!(
        sent.text,
        r#"{"contents":[{"role":"user","parts":[{"inlineData":{"mimeType":"image/png","data":"<0>"}},{"text":"make it blue"}]}],"generationConfig":{"maxOutputTokens":4096,"responseModalities":["IMAGE"],"imageConfig":{"aspectRatio":"3:2"}}}"#
    );
    assert_eq!(sent.ignored, ["user"]);
}

#[test]
fn what_it_cannot_be_told_of_an_image_is_refused_by_name() {
    let plain = || image_request("a cat");
    let some = |text: &str| Some(text.to_owned());
    for (image, field) in [
        (
            ImageRequest {
                count: 2,
                ..plain()
            },
            "n",
        ),
        (
            ImageRequest {
                size: some("1000x7"),
                ..plain()
            },
            "size",
        ),
        (
            ImageRequest {
                size: some("0x0"),
                ..plain()
            },
            "size",
        ),
        (
            ImageRequest {
                quality: some("hd"),
                ..plain()
            },
            "quality",
        ),
        (
            ImageRequest {
                background: some("transparent"),
                ..plain()
            },
            "background",
        ),
        (
            ImageRequest {
                media_type: some("image/webp"),
                ..plain()
            },
            "output_format",
        ),
        (
            ImageRequest {
                extra: vec![pair("response_format", "\"url\"")],
                ..plain()
            },
            "response_format",
        ),
        (
            ImageRequest {
                extra: vec![pair("style", "\"vivid\"")],
                ..plain()
            },
            "style",
        ),
    ] {
        let failure = send::<Gemini>(of(image), &[]).expect_err(field);
        assert_eq!(
            (failure.kind, failure.param.as_deref()),
            (FailureKind::Unsupported, Some(field))
        );
    }
}

#[test]
fn an_answer_without_the_image_is_none() {
    for (body, kind) in [
        (
            r#"{"candidates":[{"finishReason":"IMAGE_SAFETY"}]}"#,
            FailureKind::Filtered,
        ),
        (
            r#"{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"}}"#,
            FailureKind::Filtered,
        ),
        (
            r#"{"candidates":[{"content":{"parts":[{"text":"No."}]},"finishReason":"STOP"}]}"#,
            FailureKind::Rejected,
        ),
    ] {
        let task = Task::Image(image_request("a cat"));
        let (_, result) = receive_for::<Gemini>(task, 200, JSON, [body.as_bytes()]);
        assert_eq!(result.expect_err("no image").kind, kind, "{body}");
    }
    let body = r#"{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"aGk="}}]},"finishReason":"STOP"}]}"#;
    let task = Task::Image(image_request("a cat"));
    let (events, result) = receive_for::<Gemini>(task, 200, JSON, [body.as_bytes()]);
    assert_eq!(result, Ok(()));
    assert_eq!(
        lines(&events),
        ["media image/png of 2 bytes", "finish Stop"]
    );
}

/// Neither the limit on events nor a guest's memory limits an image.
#[test]
fn an_image_of_any_size_passes_through_streamed_or_not() {
    let image = "iVBORw0KGgoA".repeat(2_000_000);
    let answer = format!(
        r#"{{"candidates":[{{"content":{{"parts":[{{"inlineData":{{"mimeType":"image/png","data":"{image}"}}}}]}},"finishReason":"STOP"}}],"responseId":"r"}}"#
    );
    for (headers, answer) in [
        (JSON, answer.clone()),
        (JSON, format!("[{answer}]")),
        (EVENT_STREAM, format!("data: {answer}\r\n\r\n")),
        (EVENT_STREAM, format!("data: {{\"response\":{answer}}}\n\n")),
    ] {
        let task = Task::Chat(streamed("a cat"));
        let pieces = answer.as_bytes().chunks(1 << 16);
        let (events, result) = receive_for::<Gemini>(task, 200, headers, pieces);
        assert_eq!(result, Ok(()));
        let said = lines(&events);
        assert!(
            said.contains(&"media image/png of 18000000 bytes".to_owned()),
            "{said:?}"
        );
        for event in &events {
            if let Event::MediaBytes(piece) = event {
                assert!(piece.data.len() <= 1 << 16);
            }
        }
    }
}

/// The arguments of a call are never extracted as an image, even if they look like one.
#[test]
fn a_calls_arguments_are_left_as_they_are() {
    let arguments = r#"{"inlineData":{"data":"aGk=","mimeType":"image/png"}}"#;
    let answer = format!(
        r#"{{"candidates":[{{"content":{{"parts":[{{"functionCall":{{"id":"1","name":"f","args":{arguments}}}}}]}},"finishReason":"STOP"}}]}}"#
    );
    let task = Task::Chat(streamed("a cat"));
    let (events, result) = receive_for::<Gemini>(task, 200, JSON, [answer.as_bytes()]);
    assert_eq!(result, Ok(()));
    let said = lines(&events);
    assert!(said.contains(&format!("0: {arguments}")), "{said:?}");
}
