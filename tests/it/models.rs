//! `GET /models` and `GET /v1/models`.

use tests::Gateway;
use weir_app::config::Config;

#[tokio::test]
async fn lists_models_with_every_field() {
    let gateway = Gateway::start().await;
    let answer = gateway.client().get("/models").await;
    assert_eq!(answer.status, 200);
    let models = answer.json()["models"].clone();
    let demo = &models[0];
    assert_eq!(demo["id"], "demo");
    assert_eq!(demo["provider"], "demo");
    assert!(demo["name"].is_string());
    assert_eq!(demo["context_window"], 128_000);
    assert_eq!(demo["max_output_tokens"], 16_384);
    assert_eq!(demo["supports_tools"], true);
    assert_eq!(demo["supports_vision"], true);
    // 0.5 and 1.5 USD per million tokens, times 1.4, at 1,000 credits per USD.
    assert_eq!(demo["cost_per_1k_input"], 0.7);
    assert_eq!(demo["cost_per_1k_output"], 2.1);
    assert!(demo.get("cost_per_image").is_none());
    // 0.001 USD, times 1.4, times 1.15.
    let listed = models.as_array().expect("a list");
    let named = |id: &str| listed.iter().find(|model| model["id"] == id);
    let image = named("demo-image").expect("it is listed");
    assert_eq!(image["cost_per_image"], 1.61);
    assert_eq!(image["cost_per_1k_output"], 0.0);
}

#[tokio::test]
async fn lists_models_for_the_clients_of_either_vendor() {
    let gateway = Gateway::start().await;
    let list = gateway.client().get("/v1/models").await.json();
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"][0]["id"], "demo");
    assert_eq!(list["data"][0]["object"], "model");
    let one = gateway.client().get("/v1/models/demo").await.json();
    assert_eq!(one, list["data"][0]);
    assert_eq!(one["type"], "model");
    assert!(one["display_name"].is_string() && one["created_at"].is_string());
    assert_eq!(one["max_tokens"], 16_384);
    let no_text = gateway.client().get("/v1/models/%ff").await;
    no_text.error(404, "UNKNOWN_MODEL");
    gateway
        .client()
        .get("/v1/models/none")
        .await
        .error(404, "UNKNOWN_MODEL");
    // The header that Anthropic's SDKs send selects the dialect.
    let client = gateway
        .client()
        .with_header("anthropic-version", "2023-06-01");
    let error = client
        .get("/v1/models/none")
        .await
        .error(404, "UNKNOWN_MODEL");
    assert_eq!(error["type"], "not_found_error");
}

#[tokio::test]
async fn models_are_listed_in_pages_to_who_asks_for_them() {
    let gateway = Gateway::builder()
        .provider("local", "demo", None)
        .model("a", &["local"])
        .model("b", &["local"])
        .start()
        .await;
    let client = gateway.client();
    let page = async |query: &str| {
        let page = client.get(&format!("/v1/models{query}")).await.json();
        let ids = page["data"].as_array().expect("a list").iter();
        let ids: Vec<_> = ids
            .map(|model| model["id"].as_str().expect("an id").to_owned())
            .collect();
        assert_eq!(page["first_id"].as_str(), ids.first().map(String::as_str));
        assert_eq!(page["last_id"].as_str(), ids.last().map(String::as_str));
        (
            ids.join(" "),
            page["has_more"].as_bool().expect("yes or no"),
        )
    };
    let all = "a b demo demo-embedding demo-image demo-moderation demo-rerank demo-speech demo-transcription";
    for (query, ids, has_more) in [
        ("", all, false),
        ("?limit=1000", all, false),
        ("?limit=2", "a b", true),
        (
            "?limit=2&after_id=demo-rerank",
            "demo-speech demo-transcription",
            false,
        ),
        ("?limit=1&before_id=demo", "b", true),
        ("?after_id=demo-transcription", "", false),
    ] {
        assert_eq!(page(query).await, (ids.to_owned(), has_more), "{query}");
    }
    for query in ["?limit=0", "?limit=1001", "?limit=x"] {
        let answer = client.get(&format!("/v1/models{query}")).await;
        assert_eq!(answer.error(400, "INVALID_REQUEST")["param"], "limit");
    }
}

/// A short credential may be a word, which would be redacted in every response that contains it.
#[tokio::test]
async fn a_provider_with_too_short_a_credential_is_left_out_and_said_to_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut builder = Gateway::builder();
    for bytes in [15, 16] {
        let file = folder.path().join(bytes.to_string());
        std::fs::write(&file, "e".repeat(bytes)).expect("the folder can be written");
        let table = format!(
            "[providers.p{bytes}]\nadapter = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1\"\n\
             credential = {{ file = {file:?} }}\n"
        );
        builder = builder.tables(&table);
    }
    let gateway = builder
        .model("m15", &["p15"])
        .model("m16", &["p16"])
        .start()
        .await;
    let catalog = gateway.app().catalog.load();
    let left_out = catalog.left_out.iter();
    let said: Vec<_> = left_out
        .filter(|left_out| left_out.provider.starts_with("p1"))
        .map(|left_out| {
            (
                &*left_out.provider,
                left_out.why.to_string().contains("fewer than 16 bytes"),
            )
        })
        .collect();
    assert_eq!(said, [("p15", true)]);
    let short = gateway.chat("m15", "Hello").await;
    short.error(400, "UNKNOWN_MODEL");
    let long = gateway.chat("m16", "Hello").await;
    long.error(503, "UPSTREAM_UNAVAILABLE");
}

#[tokio::test]
async fn a_provider_without_its_credential_is_left_out_with_its_models() {
    let gateway = Gateway::builder()
        .tables(
            "[providers.absent]\nadapter = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1\"\n\
             credential = { env = \"WEIR_TEST_SURELY_NOT_SET\" }\n",
        )
        .model("orphan", &["absent"])
        .provider("local", "demo", None)
        .model("shared", &["absent", "local"])
        .start()
        .await;
    let ids: Vec<_> = gateway.client().get("/models").await.json()["models"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|model| model["id"].as_str().expect("an id").to_owned())
        .collect();
    assert!(!ids.contains(&"orphan".to_owned()), "{ids:?}");
    assert!(ids.contains(&"shared".to_owned()), "{ids:?}");
    gateway
        .chat("orphan", "Hello")
        .await
        .error(400, "UNKNOWN_MODEL");
    assert_eq!(
        gateway.chat("shared", "Hello").await.content(),
        "You said: Hello"
    );
    let catalog = gateway.app().catalog.load();
    let left_out = &catalog.left_out;
    let absent = left_out
        .iter()
        .find(|left_out| left_out.provider == "absent");
    assert_eq!(
        absent.map(|left_out| left_out.models.as_slice()),
        Some(&["orphan".to_owned()][..])
    );
}

#[test]
fn the_demo_model_is_for_development_unless_it_is_configured() {
    for (settings, is_there) in [
        ("", true),
        ("dev = true", true),
        ("dev = false", false),
        ("dev = false\n[providers.demo]\nadapter = \"demo\"\n", true),
        ("dev = false\n[models.demo]\nname = \"For tests\"\n", true),
    ] {
        let config = Config::from_toml(settings).expect("it fits");
        assert_eq!(config.models.contains_key("demo"), is_there, "{settings}");
        assert_eq!(
            config.providers.contains_key("demo"),
            is_there,
            "{settings}"
        );
    }
}
