//! Input images count by the formula of their model: in `count_tokens`, in the hold, and if the provider reports no count.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tests::{Client, Gateway, Reply, Upstream};

use crate::billing::is_settled;

/// The head of a PNG of this size, which is all that weir reads of it.
fn png(width: u32, height: u32) -> String {
    let sides = [width.to_be_bytes(), height.to_be_bytes()].concat();
    STANDARD.encode([b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".as_slice(), &sides].concat())
}

/// A gateway with a model of each family, and one without a family.
async fn gateway(upstream: &Upstream) -> Gateway {
    let mut models = String::new();
    for (id, family) in [
        ("claude", "image_family = \"claude-4\""),
        ("gpt", "image_family = \"gpt-4o\""),
        ("gemini", "image_family = \"gemini-2\""),
        ("other", ""),
    ] {
        models += &format!(
            "[models.{id}]\ncontext_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 100\n\
             max_image_tokens = 1700\n{family}\nsupports_vision = true\n\
             upstreams = [{{ provider = \"scripted\" }}]\nprice = {{ input = 1, output = 1 }}\n"
        );
    }
    Gateway::builder()
        .upstream("scripted", upstream)
        .tables(&models)
        .start()
        .await
}

/// The estimate for a message with an image.
async fn counted(client: &Client, model: &str, image: &Value) -> u64 {
    let content = json!([{ "type": "text", "text": "1234" }, { "type": "image", "source": image }]);
    let body = json!({ "model": model, "messages": [{ "role": "user", "content": content }] });
    let answer = client.post("/v1/messages/count_tokens", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["input_tokens"].as_u64().expect("a count")
}

#[tokio::test]
async fn an_estimate_counts_each_image_as_its_model_does() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    let inline = |data: &str| json!({ "type": "base64", "media_type": "image/png", "data": data });
    for (model, width, height, tokens) in [
        ("claude", 200, 200, 64),
        ("claude", 1_092, 1_092, 1_521),
        ("gpt", 512, 512, 255),
        ("gpt", 1_024, 1_024, 765),
        ("gemini", 300, 300, 258),
        ("gemini", 960, 540, 1_548),
        // Never more than the maximum.
        ("gemini", 3_000, 3_000, 1_700),
        ("other", 200, 200, 1_700),
    ] {
        let count = counted(&client, model, &inline(&png(width, height))).await;
        assert_eq!(count, 1 + tokens, "{model}, {width} × {height}");
    }
    // weir does not know the size.
    assert_eq!(counted(&client, "claude", &inline("aGk=")).await, 1_701);
    let url = json!({ "type": "url", "url": "https://a.example/b.png" });
    assert!(counted(&client, "claude", &url).await > 1_700);
    // Google's own endpoint counts in the same way.
    let data = json!({ "inlineData": { "mimeType": "image/png", "data": png(300, 300) } });
    let body = json!({ "contents": [{ "parts": [{ "text": "1234" }, data] }] });
    let answer = client
        .post("/v1beta/models/gemini:countTokens", &body)
        .await;
    assert_eq!(answer.json()["totalTokens"], 259, "{}", answer.text());
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn a_hold_and_a_charge_without_a_report_follow_the_size_and_the_detail() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    let unreported = json!({ "choices": [{ "index": 0, "message": { "content": "So" }, "finish_reason": "stop" }] });
    let mut held = Vec::new();
    for (model, detail, tokens) in [
        ("gpt", "high", 765),
        ("gpt", "low", 85),
        ("other", "low", 1_700),
    ] {
        upstream.will(Reply::json(200, &unreported));
        let url = format!("data:image/png;base64,{}", png(1_024, 1_024));
        let content = json!([
            { "type": "text", "text": "1234" },
            { "type": "image_url", "image_url": { "url": url, "detail": detail } },
        ]);
        let body = json!({ "model": model, "max_tokens": 10, "messages": [{ "role": "user", "content": content }] });
        let answer = client.post("/v1/chat/completions", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json()["usage"]["prompt_tokens"], 1 + tokens);
        is_settled(&gateway).await;
        let requests = client.get("/usage/requests?limit=1").await.json();
        let credits = requests["requests"][0]["held_credits"].as_f64();
        held.push((tokens, credits.expect("a hold")));
    }
    // A credit is 0.001 USD, a million tokens cost 1 USD times 1.4, and weir believes reports of up to twice its own count.
    let (base, of_base) = held[1];
    for (tokens, credits) in held {
        let more = 1.4 * f64::from(2 * (tokens - base)) / 1_000.0;
        assert!(
            (credits - of_base - more).abs() < 1e-6,
            "{tokens}: {credits}"
        );
    }
}
