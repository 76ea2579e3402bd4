//! Aliases of models: a request for an alias is a request for the model, also for its limits and filters.

use serde_json::json;
use tests::gateway::Builder;
use tests::{Gateway, Reply, Upstream, chat, guests};
use weir_app::config::Config;

use crate::billing::is_settled;
use crate::budgets::key;
use crate::operate::{fail, folder, succeed};
use crate::swarms::{agent, ended, swarm};

const ALIAS: &str = "scripted-20261001";

/// A gateway whose model `scripted` has an alias, beside the model `other`.
fn aliased(upstream: &Upstream) -> Builder {
    Gateway::builder()
        .upstream("scripted", upstream)
        .tables(&format!("aliases = [{ALIAS:?}]"))
        .model("other", &["scripted"])
}

#[tokio::test]
async fn an_alias_is_served_as_its_model_and_answers_name_the_id() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("fine"));
    let gateway = aliased(&upstream).start().await;
    let client = gateway.client();
    let message = json!([{ "role": "user", "content": "Hello" }]);
    for (path, body) in [
        ("/chat", chat(ALIAS, "Hello")),
        ("/v1/chat/completions", chat(ALIAS, "Hello")),
        (
            "/v1/messages",
            json!({ "model": ALIAS, "messages": message, "max_tokens": 10 }),
        ),
        ("/v1/responses", json!({ "model": ALIAS, "input": "Hello" })),
    ] {
        let answer = client.post(path, &body).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(answer.json()["model"], "scripted", "{path}");
        let sent = upstream.requests().last().expect("a request").json();
        assert_eq!(sent["model"], "scripted", "{path}");
    }
    let count = json!({ "model": ALIAS, "messages": message });
    let counted = client.post("/v1/messages/count_tokens", &count).await;
    assert_eq!(counted.status, 200, "{}", counted.text());
    is_settled(&gateway).await;
    let history = client.get("/usage/requests").await.json();
    let requests = history["requests"].as_array().expect("a list");
    assert_eq!(requests.len(), 4, "{history}");
    assert!(
        requests
            .iter()
            .all(|request| request["model"] == "scripted")
    );

    // Clients can look an alias up, but lists have each model once.
    let one = client.get(&format!("/v1/models/{ALIAS}")).await.json();
    assert_eq!(one["id"], "scripted");
    for path in ["/models", "/v1/models"] {
        let list = client.get(path).await.text();
        assert!(
            list.contains("\"scripted\"") && !list.contains(ALIAS),
            "{path}: {list}"
        );
    }
}

#[tokio::test]
async fn keys_plans_and_swarms_treat_an_alias_as_its_model() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("fine"));
    let gateway = aliased(&upstream)
        .swarms()
        .tables("[plans.free]\nmodels = [\"scripted\"]\n[plans.pro]\nmodels = [\"scripted\"]")
        .start()
        .await;
    gateway.set_plan("pro").await;
    // The list of a new key may have an alias, and the stored list has the id.
    let (_, scripted) = key(&gateway, json!({ "models": [ALIAS] })).await;
    let (_, other) = key(&gateway, json!({ "models": ["other"] })).await;
    for model in [ALIAS, "scripted"] {
        let answer = scripted.post("/chat", &chat(model, "Hello")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let refused = other.post("/chat", &chat(model, "Hello")).await;
        refused.error(403, "MODEL_NOT_ALLOWED");
        let mut agent = agent("scout");
        agent["model"] = json!(model);
        let refused = other.post("/swarms", &swarm(&[agent.clone()])).await;
        refused.error(403, "MODEL_NOT_ALLOWED");
        let accepted = scripted.post("/swarms", &swarm(&[agent])).await;
        assert_eq!(accepted.status, 202, "{}", accepted.text());
        let id = accepted.json()["execution_id"]
            .as_str()
            .expect("an id")
            .to_owned();
        let record = ended(&scripted, &id).await;
        assert_eq!(record["status"], "completed", "{record}");
    }
}

#[tokio::test]
async fn an_alias_does_not_bypass_its_models_filters() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("fine"));
    let gateway = aliased(&upstream)
        .plugin("meddling", guests::meddling())
        .tables("[plugins]\nquarantine_traps = 0\n[[filters]]\nslot = \"meddling\"\nmodels = [\"scripted\"]")
        .start()
        .await;
    let refused = gateway.chat(ALIAS, "meddle refuse").await;
    refused.error(400, "CONTENT_FILTERED");
    assert_eq!(gateway.chat("other", "meddle refuse").await.status, 200);
}

#[test]
fn ambiguous_aliases_are_errors_with_their_path() {
    let model = |id: &str, aliases: &str| {
        format!(
            "[models.{id}]\naliases = {aliases}\ncontext_window = 9\nmax_output_tokens = 9\ndefault_output_tokens = 9\n\
             upstreams = [{{ provider = \"demo\" }}]\nprice = {{ input = 1, output = 1 }}\n"
        )
    };
    let folder = folder(
        &(model("a", "[\"b\", \"a\", \"\"]")
            + &model("b", "[\"c\"]")
            + &model("d", "[\"x\", \"c\"]")),
    );
    let errors = fail(folder.path(), &["check"]);
    for part in [
        "models.\"a\".aliases[0]: \"b\" is the id of a model",
        "models.\"a\".aliases[1]: \"a\" is the id of a model",
        "models.\"a\".aliases[2]: an alias has 1 to 256 bytes",
        "models.\"d\".aliases[1]: \"c\" is an alias of the model \"b\"",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
    assert_eq!(errors.matches(".aliases[").count(), 4, "{errors}");
}

/// An upgrade that adds an alias to a built-in model must not stop a gateway that has a model of this name.
#[test]
fn a_configured_model_takes_its_name_from_a_built_in_alias() {
    let named = "context_window = 9\nmax_output_tokens = 9\ndefault_output_tokens = 9\n\
                 upstreams = [{ provider = \"demo\" }]\nprice = { input = 1, output = 1 }\n";
    let aliases = |toml: &str| {
        let config = Config::from_toml(toml).expect("it fits");
        config.models["claude-haiku-4-5"].aliases.clone()
    };
    let dated = "claude-haiku-4-5-20251001";
    assert_eq!(aliases(""), [dated]);
    assert!(aliases(&format!("[models.{dated:?}]\n{named}")).is_empty());
    assert!(aliases(&format!("[models.own]\naliases = [{dated:?}]\n{named}")).is_empty());
    let own = "[models.\"claude-haiku-4-5\"]\naliases = [\"claude-3-5-haiku-latest\"]";
    assert_eq!(aliases(own), ["claude-3-5-haiku-latest"]);
}

#[test]
fn the_catalog_command_shows_aliases() {
    let folder = folder("[models.demo]\naliases = [\"toy\", \"trial\"]\n");
    let printed = succeed(folder.path(), &["catalog", "--offline"]);
    assert!(
        printed.contains("ALIASES") && printed.contains("toy,trial"),
        "{printed}"
    );
}
