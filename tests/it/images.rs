//! Images: from prompts and from other images, by endpoints of their own and in chats, with their prices.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::gateway::Builder;
use tests::{Answer, Client, Gate, Gateway, Reply, Upstream, chat, patiently};

const GENERATIONS: &str = "/v1/images/generations";
const EDITS: &str = "/v1/images/edits";

/// 0.04 USD, times 1.4, times 1.15.
const PRICE: f64 = 64.4;

/// A gateway whose model `painter` generates images, at 0.04 USD each.
fn painting(adapter: &str, upstream: &Upstream, more: &str) -> Builder {
    Gateway::builder()
        .provider("painter", adapter, Some(upstream))
        .model("writer", &["painter"])
        .tables(&format!(
            "[models.painter]\ncontext_window = 2000\nmax_output_tokens = 2000\ndefault_output_tokens = 2000\n\
             max_image_tokens = 400\nsupports_vision = true\nprice = {{ image = 0.04 }}\n\
             upstreams = [{{ provider = \"painter\", model = \"gpt-image-x\" }}]\n{more}"
        ))
}

async fn painter(adapter: &str, upstream: &Upstream, more: &str) -> Gateway {
    painting(adapter, upstream, more).start().await
}

/// The sizes and qualities that the price covers.
const LISTED: &str = "image_sizes = [\"1024x1024\"]\nimage_qualities = [\"medium\", \"low\"]\n";

fn asked(prompt: &str) -> Value {
    json!({ "model": "painter", "prompt": prompt })
}

/// An upstream's response with these images.
fn made(images: &[&[u8]]) -> Reply {
    let data: Vec<_> = images
        .iter()
        .map(|image| json!({ "b64_json": STANDARD.encode(image) }))
        .collect();
    let usage = json!({ "input_tokens": 9, "output_tokens": 272, "total_tokens": 281 });
    Reply::json(200, &json!({ "created": 1, "data": data, "usage": usage }))
}

fn moderated() -> Reply {
    let error = json!({
        "message": "Your request was rejected by the safety system.", "type": "image_generation_user_error",
        "param": null, "code": "moderation_blocked",
    });
    Reply::json(400, &json!({ "error": error }))
}

fn decoded(image: &Value) -> Vec<u8> {
    let base64 = image["b64_json"].as_str().expect("an image");
    STANDARD.decode(base64).expect("base64")
}

/// Returns status, images and credits of the last request with a hold.
async fn ended(client: &Client) -> (String, i64, f64) {
    let list = client.get("/usage/requests?limit=1").await.json();
    let last = &list["requests"][0];
    (
        last["status"].as_str().unwrap_or_default().to_owned(),
        last["images"].as_i64().unwrap_or(-1),
        last["credits"].as_f64().unwrap_or(-1.0),
    )
}

fn settled(images: i64) -> (String, i64, f64) {
    let credits = (images as f64 * PRICE * 10.0).round() / 10.0;
    ("settled".to_owned(), images, credits)
}

fn released() -> (String, i64, f64) {
    ("released".to_owned(), 0, 0.0)
}

#[tokio::test]
async fn images_are_made_of_a_prompt_and_paid_by_the_piece() {
    let upstream = Upstream::start().await;
    upstream.will(made(&[b"one", b"two"]));
    let gateway = painter("openai", &upstream, LISTED).await;
    let client = gateway.client();
    let mut body = asked("a cat");
    for (field, value) in [
        ("n", json!(2)),
        ("background", json!("transparent")),
        ("output_format", json!("webp")),
        ("output_compression", json!(80)),
        ("moderation", json!("low")),
        ("user", json!("u-1")),
        ("metadata", json!({ "a": "b" })),
    ] {
        body[field] = value;
    }
    let answer = client.post(GENERATIONS, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.headers["x-weir-ignored"], "metadata");
    let told = answer.json();
    assert!(told["created"].is_i64());
    assert_eq!(told["output_format"], "webp");
    assert_eq!(decoded(&told["data"][0]), b"one");
    assert_eq!(decoded(&told["data"][1]), b"two");
    assert_eq!(told["usage"]["output_tokens"], 272);
    assert_eq!(told["usage"]["credits"], 2.0 * PRICE);
    assert_eq!(ended(&client).await, settled(2));
    let request = upstream.next_request().await;
    assert_eq!(request.path, "/images/generations");
    // If the client leaves a property open, the request asks for one that the price covers.
    assert_eq!(
        request.json(),
        json!({
            "model": "gpt-image-x", "prompt": "a cat", "n": 2, "size": "1024x1024", "quality": "medium",
            "background": "transparent", "output_format": "webp", "output_compression": 80, "moderation": "low",
            "user": "u-1",
        })
    );
}

/// OpenAI ends `gpt-image-1-mini` on 1 December 2026.
#[tokio::test]
async fn the_catalog_has_an_image_model_of_openai_that_does_not_end() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .provider("openai", "openai", Some(&upstream))
        .start()
        .await;
    let client = gateway.client();
    upstream.will(made(&[b"one"])).will(made(&[b"two"]));
    let mut body = asked("a cat");
    for (model, quality) in [
        ("gpt-image-2.5-sunburst", None),
        ("gpt-image-2.5-sunburst-2026-09-08", Some("low")),
    ] {
        body["model"] = json!(model);
        body["quality"] = json!(quality);
        let answer = client.post(GENERATIONS, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        // 0.05268 USD, times 1.4, times 1.15.
        assert_eq!(answer.json()["usage"]["credits"], 84.8148);
        let sent = upstream.next_request().await.json();
        assert_eq!(sent["model"], "gpt-image-2.5-sunburst");
        assert_eq!(sent["size"], "1024x1024");
        assert_eq!(sent["quality"], quality.unwrap_or("high"));
    }
    // The price does not cover these.
    for (field, value) in [("quality", "max"), ("size", "3840x2160")] {
        let mut body = asked("a cat");
        body["model"] = json!("gpt-image-2.5-sunburst");
        body[field] = json!(value);
        let answer = client.post(GENERATIONS, &body).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
    }
    let models = client.get("/models").await.json();
    let models = models["models"].as_array().expect("a list").iter();
    let mut images = models.filter(|model| model["id"] == "gpt-image-2.5-sunburst");
    let model = images.next().expect("the model");
    assert!(model["ends_on"].is_null(), "{model}");
}

#[tokio::test]
async fn who_is_delivered_fewer_images_pays_for_those() {
    let upstream = Upstream::start().await;
    let gateway = painter("openai", &upstream, "").await;
    let client = gateway.client();
    let mut body = asked("a cat");
    body["n"] = json!(3);
    upstream.will(made(&[b"one"]));
    assert_eq!(client.post(GENERATIONS, &body).await.status, 200);
    assert_eq!(ended(&client).await, settled(1));
    // The charge never exceeds the requested number of images.
    upstream.will(made(&[b"1", b"2", b"3", b"4"]));
    assert_eq!(client.post(GENERATIONS, &body).await.status, 200);
    assert_eq!(ended(&client).await, settled(3));
    for broken in [
        made(&[]),
        made(&[b"one", b"two"]).cut_after(40),
        Reply::json(200, &json!({ "data": [{ "b64_json": "a?" }] })),
    ] {
        upstream.will(broken);
        let answer = client.post(GENERATIONS, &body).await;
        answer.error(502, "UPSTREAM_ERROR");
        assert_eq!(ended(&client).await, released());
    }
}

#[tokio::test]
async fn images_that_are_elsewhere_are_told_by_their_urls() {
    let upstream = Upstream::start().await;
    let answer =
        json!({ "data": [{ "url": "https://a.example/1.png", "revised_prompt": "A cat." }] });
    upstream.always(Reply::json(200, &answer));
    let gateway = painter("openai", &upstream, "").await;
    let client = gateway.client();
    let told = client.post(GENERATIONS, &asked("a cat")).await.json();
    assert_eq!(told["data"], answer["data"]);
    assert_eq!(ended(&client).await, settled(1));
    let told = client.post("/chat", &chat("painter", "a cat")).await.json();
    let image = &told["choices"][0]["message"]["images"][0];
    assert_eq!(image["image_url"]["url"], "https://a.example/1.png");
}

#[tokio::test]
async fn what_the_moderation_refuses_costs_nothing_and_is_told_in_openais_words() {
    let upstream = Upstream::start().await;
    upstream.will(moderated());
    let gateway = painter("openai", &upstream, "").await;
    let client = gateway.client();
    let answer = client.post(GENERATIONS, &asked("a cat")).await;
    let error = answer.error(400, "CONTENT_FILTERED");
    assert_eq!(error["code"], "moderation_blocked");
    assert_eq!(error["type"], "image_generation_user_error");
    assert_eq!(ended(&client).await, released());
    let blame = json!({ "message": "Invalid value.", "type": "invalid_request_error", "param": "background", "code": "invalid_value" });
    upstream.will(Reply::json(400, &json!({ "error": blame })));
    let answer = client.post(GENERATIONS, &asked("a cat")).await;
    let error = answer.error(400, "UPSTREAM_REJECTED");
    assert_eq!(
        (&error["code"], &error["param"]),
        (&json!("invalid_value"), &json!("background"))
    );
    // Other dialects get weir's error.
    upstream.will(moderated());
    let answer = client.post("/chat", &chat("painter", "a cat")).await;
    assert_eq!(
        answer.error(400, "CONTENT_FILTERED")["code"],
        "CONTENT_FILTERED"
    );
}

#[tokio::test]
async fn what_cannot_be_is_refused_before_any_upstream_is_asked() {
    let upstream = Upstream::start().await;
    upstream.always(made(&[b"one"]));
    let gateway = painter("openai", &upstream, LISTED).await;
    let client = gateway.client();
    for (field, value, code, param) in [
        ("n", json!(0), "INVALID_REQUEST", "n"),
        ("prompt", Value::Null, "INVALID_REQUEST", "prompt"),
        ("quality", json!("high"), "INVALID_REQUEST", "quality"),
        ("size", json!("4096x4096"), "INVALID_REQUEST", "size"),
        (
            "input_fidelity",
            json!("high"),
            "INVALID_REQUEST",
            "input_fidelity",
        ),
        (
            "response_format",
            json!("url"),
            "UNSUPPORTED_PARAMETER",
            "response_format",
        ),
        ("steps", json!(4), "UNSUPPORTED_PARAMETER", "steps"),
        (
            "prompt",
            json!("x".repeat(9_000)),
            "CONTEXT_LENGTH_EXCEEDED",
            "prompt",
        ),
        ("model", json!("writer"), "MODEL_NOT_SUPPORTED", "model"),
    ] {
        let mut body = asked("a cat");
        body[field] = value;
        let error = client.post(GENERATIONS, &body).await.error(400, code);
        assert_eq!(error["param"], param, "{error}");
    }
    let mut unknown = asked("a cat");
    unknown["model"] = json!("none");
    client
        .post(GENERATIONS, &unknown)
        .await
        .error(404, "UNKNOWN_MODEL");
    let images = json!([{ "image_url": "data:image/png;base64,AAAA" }]);
    let mut body = chat("painter", "a cat");
    body["tools"] = json!([{ "type": "function", "function": { "name": "f" } }]);
    for (path, field, value, code, param) in [
        (
            "/chat",
            "tools",
            body["tools"].clone(),
            "MODEL_NOT_SUPPORTED",
            "tools",
        ),
        (
            "/code",
            "top_k",
            Value::Null,
            "MODEL_NOT_SUPPORTED",
            "model",
        ),
        (
            "/chat",
            "temperature",
            json!(1),
            "UNSUPPORTED_PARAMETER",
            "temperature",
        ),
        ("/chat", "stop", json!("."), "UNSUPPORTED_PARAMETER", "stop"),
        (
            "/chat",
            "response_format",
            json!({ "type": "json_object" }),
            "UNSUPPORTED_PARAMETER",
            "response_format",
        ),
        (
            "/chat",
            "messages",
            json!([{ "role": "system", "content": "a cat" }]),
            "INVALID_REQUEST",
            "messages",
        ),
        (
            "/chat",
            "messages",
            json!([{ "role": "user", "content": " " }]),
            "INVALID_REQUEST",
            "messages[0].content",
        ),
    ] {
        let mut body = chat("painter", "a cat");
        body[field] = value;
        let error = client.post(path, &body).await.error(400, code);
        assert_eq!(error["param"], param, "{path} {body}: {error}");
    }
    let mut edit = asked("a cat");
    edit["images"] = images;
    client
        .post(GENERATIONS, &edit)
        .await
        .error(400, "INVALID_REQUEST");
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn who_cannot_pay_for_all_that_is_asked_for_gets_none() {
    let upstream = Upstream::start().await;
    upstream.always(made(&[b"one"]));
    let poor = painting("openai", &upstream, "").credits(0).start().await;
    let client = poor.client();
    let mut body = asked("a cat");
    // 500 credits pay for seven images at most.
    body["n"] = json!(8);
    let error = client
        .post(GENERATIONS, &body)
        .await
        .error(429, "QUOTA_EXCEEDED");
    assert_eq!(error["code"], "insufficient_quota");
    assert_eq!(error["required_credits"], 515.2, "{error}");
    assert_eq!(upstream.count(), 0);
    body["n"] = json!(7);
    assert_eq!(client.post(GENERATIONS, &body).await.status, 200);
    assert_eq!(ended(&client).await, settled(1));
}

/// A form of these parts: their headers after `form-data`, and their contents.
fn form(boundary: &str, parts: &[(&str, &[u8])]) -> Bytes {
    let mut body = Vec::new();
    for (head, content) in parts {
        let head = format!("--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    body.into()
}

async fn post_form(client: &Client, boundary: &str, parts: &[(&str, &[u8])]) -> Answer {
    let content_type = format!("multipart/form-data; boundary={boundary}");
    let body = form(boundary, parts);
    client
        .send(Method::POST, EDITS, Some(&content_type), body)
        .await
}

/// All byte values twice, and a fake end of a part.
fn image(number: u8) -> Vec<u8> {
    let bytes = (0..=255).chain(0..=255);
    bytes
        .chain(*b"\r\n--client-boundar\r\n")
        .chain([number])
        .collect()
}

const PNG: &str = "\r\nContent-Type: image/png";

#[tokio::test]
async fn an_edit_reaches_the_upstream_with_the_very_bytes_of_its_images() {
    let upstream = Upstream::start().await;
    upstream.always(made(&[b"made"]));
    let gateway = painter("openai", &upstream, "").await;
    let client = gateway.client();
    let (one, two, mask) = (image(1), image(2), image(3));
    let heads = [
        format!("name=\"image[]\"; filename=\"one.png\"{PNG}"),
        format!(
            "name=\"image[]\"; filename=\"two.jpg\"{}",
            PNG.replace("png", "jpeg")
        ),
        format!("name=\"mask\"; filename=\"m\"{PNG}"),
    ];
    let parts: &[(&str, &[u8])] = &[
        ("name=\"model\"", b"painter"),
        (&heads[0], &one),
        (&heads[1], &two),
        (&heads[2], &mask),
        ("name=\"prompt\"", "ein Bär\r\n".as_bytes()),
        ("name=\"n\"", b"2"),
        ("name=\"size\"", b"1024x1024"),
    ];
    let keyed = client.clone().with_header("idempotency-key", "edit-1");
    let answer = post_form(&keyed, "client-boundary", parts).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(decoded(&answer.json()["data"][0]), b"made");
    assert_eq!(ended(&client).await, settled(1));
    let request = upstream.next_request().await;
    assert_eq!(request.path, "/images/edits");
    let content_type = request.header("content-type").expect("a type");
    let boundary = content_type
        .strip_prefix("multipart/form-data; boundary=")
        .expect("a form");
    let expected = form(
        boundary,
        &[
            ("name=\"model\"", b"gpt-image-x"),
            ("name=\"n\"", b"2"),
            ("name=\"prompt\"", "ein Bär\r\n".as_bytes()),
            ("name=\"size\"", b"1024x1024"),
            (
                &format!("name=\"image[]\"; filename=\"image.png\"{PNG}"),
                &one,
            ),
            (
                &format!(
                    "name=\"image[]\"; filename=\"image.jpeg\"{}",
                    PNG.replace("png", "jpeg")
                ),
                &two,
            ),
            (
                &format!("name=\"mask\"; filename=\"image.png\"{PNG}"),
                &mask,
            ),
        ],
    );
    assert!(
        request.body == expected,
        "{}",
        String::from_utf8_lossy(&request.body)
    );

    // SDKs choose another boundary for a retry.
    let again = post_form(&keyed, "another-boundary", parts).await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(again.text(), answer.text());
    let other = post_form(&keyed, "another-boundary", &parts[..6]).await;
    other.error(409, "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn no_image_is_more_of_a_form_than_its_own_part() {
    let upstream = Upstream::start().await;
    upstream.always(made(&[b"made"]));
    let gateway = painter("openai", &upstream, "").await;
    let head = format!("name=\"image\"; filename=\"one.png\"{PNG}");
    let edit = async |image: &[u8]| {
        let parts = [
            ("name=\"model\"", &b"painter"[..]),
            ("name=\"prompt\"", b"x"),
            (&*head, image),
        ];
        post_form(&gateway.client(), "b", &parts).await
    };
    assert_eq!(edit(b"harmless").await.status, 200);
    let request = upstream.next_request().await;
    let content_type = request.header("content-type").expect("a type");
    let (_, boundary) = content_type.split_once("boundary=").expect("a boundary");
    // A client that knows weir's boundary would request ten images, and pay for one.
    let more = format!("x\r\n--{boundary}\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\n10");
    let error = edit(more.as_bytes()).await.error(400, "INVALID_REQUEST");
    assert_eq!(error["param"], "image");
    assert_eq!(upstream.count(), 1);
    assert_eq!(ended(&gateway.client()).await, released());
}

#[tokio::test]
async fn an_edit_may_be_json_and_what_is_neither_is_refused() {
    let upstream = Upstream::start().await;
    upstream.always(made(&[b"made"]));
    let gateway = painter("openai", &upstream, "").await;
    let client = gateway.client();
    let mut body = asked("a cat");
    body["images"] = json!([
        { "image_url": format!("data:image/png;base64,{}", STANDARD.encode(image(1))) },
        { "image_url": "https://a.example/2.png" },
    ]);
    assert_eq!(client.post(EDITS, &body).await.status, 200);
    let sent = upstream.next_request().await.json();
    assert_eq!(sent["images"], body["images"]);
    let typed = async |content_type: Option<&str>, body: &'static str| {
        let body = Bytes::from(body);
        client.send(Method::POST, EDITS, content_type, body).await
    };
    for content_type in [None, Some("text/plain"), Some("multipart/form-data")] {
        let answer = typed(content_type, "x").await;
        answer.error(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    let broken = typed(Some("multipart/form-data; boundary=b"), "--b\r\nhalf").await;
    broken.error(400, "INVALID_REQUEST");
    let blind = client.post(EDITS, &asked("a cat")).await;
    assert_eq!(blind.error(400, "INVALID_REQUEST")["param"], "image");
    assert_eq!(upstream.count(), 1);
}

/// Larger than the limit of one call, and together more than a guest could hold and parse.
#[tokio::test]
async fn images_of_many_megabytes_arrive_whole_whatever_makes_them() {
    let image = |seed: u64, bytes: usize| -> Vec<u8> {
        let mut state = seed;
        let next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 56) as u8
        };
        std::iter::repeat_with(next).take(bytes).collect()
    };
    let images = [
        image(1, 9 << 20),
        image(2, 1),
        image(3, 2 << 20),
        image(4, 5 << 20),
    ];
    let upstream = Upstream::start().await;
    upstream.will(made(&images.each_ref().map(Vec::as_slice)));
    // A limit for a busy machine.
    let patient = "[plugins.limits]\ncpu_ms = 10000\n";
    let gateway = painter("openai", &upstream, patient).await;
    let mut body = asked("large");
    body["n"] = json!(4);
    let told = gateway.client().post(GENERATIONS, &body).await.json();
    for (index, image) in images.iter().enumerate() {
        assert!(decoded(&told["data"][index]) == *image, "image {index}");
    }

    let upstream = Upstream::start().await;
    let image = STANDARD.encode(&images[3]);
    let part = json!({ "inlineData": { "mimeType": "image/png", "data": image } });
    let chunk =
        json!({ "candidates": [{ "content": { "parts": [part] }, "finishReason": "STOP" }] });
    upstream.will(Reply::events([chunk.to_string()]));
    let gateway = painter(
        "gemini",
        &upstream,
        &format!("supports_chat = true\n{patient}"),
    )
    .await;
    let stream = gateway.stream("painter", "large").await;
    let events = stream.rest().await;
    let chunks = tests::chunks(&events);
    let urls = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["images"][0]["image_url"]["url"].as_str());
    let urls: Vec<_> = urls.collect();
    let expected = format!("data:image/png;base64,{image}");
    assert!(urls == [expected], "{} images", urls.len());
    assert_eq!(ended(&gateway.client()).await, settled(1));
}

#[tokio::test]
async fn previews_come_as_they_are_made_and_the_image_when_it_is_paid_for() {
    let event = |kind: &str, image: &[u8]| {
        json!({
            "type": format!("image_generation.{kind}"), "b64_json": STANDARD.encode(image), "output_format": "png",
            "usage": { "input_tokens": 9, "output_tokens": 372 },
        })
        .to_string()
    };
    let gate = Gate::new();
    let upstream = Upstream::start().await;
    let whole = [event("partial_image", b"o"), event("completed", b"one")];
    upstream.will(Reply::events(&whole).gate_before_piece(1, &gate));
    let gateway = painter("openai", &upstream, "").await;
    let client = gateway.client();
    let mut body = asked("a cat");
    body["partial_images"] = json!(1);
    let mut stream = client.stream(GENERATIONS, &body).await;
    let read = |event: &str| -> (String, Value) {
        let (name, data) = event.split_once("\ndata: ").expect("a name and data");
        (name.to_owned(), serde_json::from_str(data).expect("JSON"))
    };
    let (name, preview) = read(&stream.next().await.expect("a preview"));
    assert_eq!(name, "event: image_generation.partial_image");
    assert_eq!(
        (decoded(&preview), &preview["partial_image_index"]),
        (b"o".to_vec(), &json!(0))
    );
    gate.open();
    let (name, completed) = read(&stream.next().await.expect("the image"));
    assert_eq!(name, "event: image_generation.completed");
    assert_eq!(decoded(&completed), b"one");
    assert_eq!(completed["usage"]["credits"], PRICE);
    assert_eq!(stream.next().await, None);
    assert_eq!(ended(&client).await, settled(1));
    let sent = upstream.next_request().await.json();
    assert_eq!(
        (&sent["stream"], &sent["partial_images"]),
        (&json!(true), &json!(1))
    );

    // A preview is output: it is charged, though the image never arrives.
    upstream.will(Reply::events([event("partial_image", b"o")]));
    let events = client.stream(GENERATIONS, &body).await.rest().await;
    let (name, error) = read(events.last().expect("an error"));
    assert_eq!(name, "event: error");
    assert_eq!(error["error"]["weir_code"], "UPSTREAM_ERROR");
    assert_eq!(ended(&client).await, settled(1));
}

/// A provider that makes five images for one is its own, or its component's, fault: its price is a cost of weir.
#[tokio::test]
async fn surplus_images_are_neither_delivered_nor_charged() {
    let names: [&[u8]; 5] = [b"image-1", b"image-2", b"image-3", b"image-4", b"image-5"];
    let parts: Vec<_> = names
        .iter()
        .map(|name| json!({ "inlineData": { "mimeType": "image/png", "data": STANDARD.encode(name) } }))
        .collect();
    let content = json!([{ "content": { "parts": parts }, "finishReason": "STOP" }]);
    let of_gemini = Reply::json(
        200,
        &json!({ "candidates": content, "usageMetadata": { "promptTokenCount": 9, "candidatesTokenCount": 9 } }),
    );
    let mut two = asked("a cat");
    two["n"] = json!(2);
    let gemini = json!({ "contents": [{ "parts": [{ "text": "a cat" }] }] });
    for (adapter, path, body, count) in [
        ("openai", GENERATIONS, asked("a cat"), 1),
        ("openai", GENERATIONS, two, 2),
        ("openai", "/chat", chat("painter", "a cat"), 1),
        (
            "openai",
            "/v1/chat/completions",
            chat("painter", "a cat"),
            1,
        ),
        (
            "openai",
            "/v1/responses",
            json!({ "model": "painter", "input": "a cat" }),
            1,
        ),
        (
            "openai",
            "/v1beta/models/painter:generateContent",
            gemini,
            1,
        ),
        ("gemini", GENERATIONS, asked("a cat"), 1),
        ("gemini", "/chat", chat("painter", "a cat"), 1),
    ] {
        let upstream = Upstream::start().await;
        upstream.always(match adapter {
            "openai" => made(&names),
            _ => of_gemini.clone(),
        });
        let gateway = painter(adapter, &upstream, "").await;
        let client = gateway.client();
        let answer = client.post(path, &body).await;
        let text = answer.text();
        assert_eq!(answer.status, 200, "{adapter} {path}: {text}");
        for (index, name) in names.iter().enumerate() {
            let is_there = text.contains(&STANDARD.encode(name));
            assert_eq!(is_there, index < count, "{adapter} {path}, {index}: {text}");
        }
        assert_eq!(
            ended(&client).await,
            settled(count as i64),
            "{adapter} {path}"
        );
        let admin = gateway.admin("root").await;
        let economics = admin.get("/admin/model-economics").await.json();
        let cost = economics[0]["provider_cost_usd"].as_f64();
        let cost = cost.expect("a cost");
        assert!(
            (cost - 5.0 * 0.04).abs() < 1e-9,
            "{adapter} {path}: {economics}"
        );
    }
}

#[tokio::test]
async fn who_hangs_up_pays_for_the_image_that_is_being_made() {
    let gate = Gate::new();
    let upstream = Upstream::start().await;
    upstream.will(made(&[b"one"]).after_gate(&gate));
    // Any other response would be abandoned at once.
    let gateway = painting("openai", &upstream, "[limits]\nhang_up_drain_ms = 0\n");
    let gateway = gateway.start().await;
    let client = gateway.client();
    let body = asked("a cat");
    let asking = client.post(GENERATIONS, &body);
    tokio::select! {
        _ = asking => panic!("nobody has made it yet"),
        () = gate.reached() => {}
    }
    gate.open();
    patiently(async {
        while !gateway.app().tasks.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(ended(&client).await, settled(1));
}

#[tokio::test]
async fn a_chat_with_a_model_that_only_makes_images_asks_for_one() {
    let upstream = Upstream::start().await;
    upstream.always(made(&[b"\x89PNG one"]));
    let gateway = painter("openai", &upstream, LISTED).await;
    let client = gateway.client();
    let url = format!("data:image/png;base64,{}", STANDARD.encode(b"\x89PNG one"));
    let mut body = chat("painter", "a cat");
    body["max_tokens"] = json!(50);
    for path in ["/chat", "/v1/chat/completions"] {
        let answer = client.post(path, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.headers["x-weir-ignored"], "max_tokens");
        let told = answer.json();
        let message = &told["choices"][0]["message"];
        assert_eq!(message["images"][0]["image_url"]["url"], url);
        assert_eq!(told["usage"]["credits"], PRICE);
        let request = upstream.next_request().await;
        assert_eq!(request.path, "/images/generations");
        let sent = json!({ "model": "gpt-image-x", "prompt": "a cat", "n": 1, "size": "1024x1024", "quality": "medium" });
        assert_eq!(request.json(), sent);
    }
    let chunks = tests::chunks(&client.stream("/chat", &body).await.rest().await);
    assert_eq!(
        chunks[0]["choices"][0]["delta"]["images"][0]["image_url"]["url"],
        url
    );
    assert_eq!(ended(&client).await, settled(1));
    upstream.next_request().await;

    // Earlier messages are not sent; images in the last message are edited.
    let said = json!([
        { "role": "system", "content": "Be kind." },
        { "role": "user", "content": "a dog" },
        { "role": "assistant", "content": "Here." },
        { "role": "user", "content": [
            { "type": "text", "text": "make it blue" },
            { "type": "image_url", "image_url": { "url": url } },
        ] },
    ]);
    let body = json!({ "model": "painter", "messages": said });
    let answer = client.post("/v1/chat/completions", &body).await;
    assert_eq!(answer.headers["x-weir-ignored"], "messages");
    let request = upstream.next_request().await;
    assert_eq!(request.path, "/images/edits");
    let sent = String::from_utf8_lossy(&request.body);
    assert!(
        sent.contains("\r\n\r\nmake it blue\r\n") && !sent.contains("dog"),
        "{sent}"
    );
    let body = json!({
        "model": "painter", "max_tokens": 50, "messages": [{ "role": "user", "content": "a cat" }],
    });
    let told = client.post("/v1/messages", &body).await.json();
    assert_eq!(told["content"][0]["type"], "image", "{told}");
}

/// A response of a Gemini model with these parts.
fn gemini(parts: &Value, reason: &str) -> Reply {
    let candidate = json!({ "content": { "parts": parts }, "finishReason": reason });
    let usage = json!({ "promptTokenCount": 5, "candidatesTokenCount": 1290 });
    Reply::json(
        200,
        &json!({ "candidates": [candidate], "usageMetadata": usage }),
    )
}

#[tokio::test]
async fn a_model_that_chats_and_makes_images_is_paid_by_the_image_either_way() {
    let upstream = Upstream::start().await;
    let gateway = painter("gemini", &upstream, "supports_chat = true\n").await;
    let client = gateway.client();
    let image = json!({ "inlineData": { "mimeType": "image/png", "data": "aGVsbG8=" } });
    let said = json!([
        { "role": "user", "content": "a dog" },
        { "role": "assistant", "content": "Here." },
        { "role": "user", "content": "make it blue" },
    ]);
    let body = json!({ "model": "painter", "messages": said });
    for (parts, images) in [
        (json!([{ "text": "Here." }, image]), 1),
        // Words alone have the same price, so that nobody gets them for free.
        (json!([{ "text": "I will write a novel instead." }]), 1),
        (json!([]), 0),
    ] {
        upstream.will(gemini(&parts, "STOP"));
        let told = client.post("/chat", &body).await.json();
        assert_eq!(
            told["usage"]["credits"],
            f64::from(images) * PRICE,
            "{told}"
        );
        assert_eq!(ended(&client).await, settled(images.into()));
        let sent = upstream.next_request().await.json();
        assert_eq!(sent["contents"].as_array().map(Vec::len), Some(3));
        assert_eq!(
            sent["generationConfig"]["responseModalities"],
            json!(["IMAGE", "TEXT"])
        );
    }

    let mut body = asked("a cat");
    body["size"] = json!("1536x1024");
    upstream.will(gemini(&json!([image]), "STOP"));
    let told = client.post(GENERATIONS, &body).await.json();
    assert_eq!(decoded(&told["data"][0]), b"hello", "{told}");
    assert_eq!(ended(&client).await, settled(1));
    let sent = upstream.next_request().await.json();
    let config = &sent["generationConfig"];
    assert_eq!(config["responseModalities"], json!(["IMAGE"]));
    assert_eq!(config["imageConfig"], json!({ "aspectRatio": "3:2" }));
    upstream.will(gemini(&json!([]), "IMAGE_SAFETY"));
    client
        .post(GENERATIONS, &body)
        .await
        .error(400, "CONTENT_FILTERED");
    assert_eq!(ended(&client).await, released());
    for (field, value) in [
        ("n", json!(2)),
        ("quality", json!("hd")),
        ("size", json!("1000x7")),
    ] {
        let mut body = asked("a cat");
        body[field] = value;
        let error = client
            .post(GENERATIONS, &body)
            .await
            .error(400, "UNSUPPORTED_PARAMETER");
        assert_eq!(error["param"], field);
    }
}

#[tokio::test]
async fn the_demo_makes_a_picture_without_any_setup() {
    let gateway = Gateway::start().await;
    let client = gateway.client();
    let body = json!({ "model": "demo-image", "prompt": "a cat" });
    let told = client.post(GENERATIONS, &body).await.json();
    let picture = decoded(&told["data"][0]);
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n"), "{told}");
    assert_eq!(told["usage"]["credits"], 1.61);
    let again = client.post(GENERATIONS, &body).await.json();
    assert_eq!(again["data"], told["data"], "the same each time");
    let refused = json!({ "model": "demo-image", "prompt": "/refuse" });
    client
        .post(GENERATIONS, &refused)
        .await
        .error(400, "CONTENT_FILTERED");
}
