//! Tools of agents' models over real sockets: permitted calls, forbidden calls, and hostile tools.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tests::gateway::{Builder, USER};
use tests::{Gate, Gateway, Reply, Upstream, guests, patiently};
use tokio::time::Instant;
use weir_app::config::Config;
use weir_ledger::{AccountId, Plan};
use weir_sandbox::Digest;
use weir_storage::secrets::Secret;
use weir_tools::rules::Rules;
use weir_tools::{CallStatus, Credential, Effect, ToolInvocation, ToolOutcome};

/// An integration's secret, in an operator's file.
const SECRET: &str = "tok-0123456789/abcdef+ghijkl==";

fn call(tool: &str, arguments: Value) -> ToolInvocation {
    ToolInvocation {
        tool: tool.to_owned(),
        arguments: arguments.to_string(),
        account: AccountId(USER.to_owned()),
        plan: Plan::Pro,
        webhook_urls: Vec::new(),
        integrations: Vec::new(),
        credentials: Vec::new(),
        idempotency_key: "key-1".to_owned(),
        deadline: Instant::now() + Duration::from_secs(60),
    }
}

async fn run(gateway: &Gateway, tool: &str, arguments: Value) -> ToolOutcome {
    gateway.app().tools.call(call(tool, arguments)).await
}

/// A gateway whose tools may reach this upstream, with the tool `scheming` beside its own.
fn reaching(upstream: &Upstream, more: &str) -> Builder {
    let at = upstream.address();
    let tables: String = ["http_get", "http_post", "webhook"]
        .iter()
        .map(|tool| {
            format!(
                "[tools.{tool}]\nprivate = [\"{at}\", \"localhost:{}\"]\n",
                at.port()
            )
        })
        .collect();
    Gateway::builder()
        .plugin("scheming", guests::scheming())
        .tables(&tables)
        .tables(more)
}

/// The settings that let `scheming` reach an upstream's host only, with the credential `tracker`.
fn scheming(upstream: &Upstream, more: &str) -> String {
    format!(
        "[tools.scheming]\nhosts = [\"127.0.0.1\"]\nmethods = [\"GET\", \"POST\"]\nplain_http = true\n\
         private = [\"{}\"]\ncredentials = [\"tracker\"]\n{more}\n{}",
        upstream.address(),
        credential(upstream, &["GET", "POST"])
    )
}

/// The credential `tracker`, for an upstream.
fn credential(upstream: &Upstream, methods: &[&str]) -> String {
    // One file for all: a gateway reads it at its start, at any time.
    static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let mut file = tempfile::NamedTempFile::new_in(folder).expect("a file");
        file.write_all(SECRET.as_bytes())
            .expect("it can be written");
        let path = folder.join("tracker-credential");
        file.persist(&path).expect("it can be renamed");
        path
    });
    let path = &*FILE;
    format!(
        "[credentials.tracker]\norigin = {:?}\nmethods = {methods:?}\npath = \"/v2\"\nsecret = {{ file = {path:?} }}\n",
        upstream.base_url()
    )
}

fn blocked(outcome: &ToolOutcome) -> &str {
    let record = &outcome.record;
    assert_eq!(record.status, CallStatus::Blocked, "{outcome:?}");
    assert!(outcome.failed, "{outcome:?}");
    record.blocked_reason.as_deref().expect("a reason")
}

/// One account's calls leave room for another's; its own wait for one another, within their time.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_has_a_share_of_the_calls_at_once() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    let gated = gate.clone();
    upstream.always_by(move |request| match request.path.as_str() {
        "/slow" => Reply::new(200).body("slow").after_gate(&gated),
        _ => Reply::new(200).body("fast"),
    });
    let limits = "[plugins]\nquarantine_traps = 0\ntool_calls = 3\ntool_calls_per_account = 2\n";
    let gateway = reaching(&upstream, limits).start().await;
    gateway.set_plan("pro").await;
    let asked = |path: &str, account: &str| ToolInvocation {
        account: AccountId(account.to_owned()),
        ..call(
            "http_get",
            json!({ "url": format!("{}{path}", upstream.base_url()) }),
        )
    };
    let spawn = |call: ToolInvocation| {
        let tools = gateway.app().tools.clone();
        tokio::spawn(async move { tools.call(call).await })
    };
    let slow = [spawn(asked("/slow", USER)), spawn(asked("/slow", USER))];
    for _ in 0..2 {
        upstream.next_request().await;
    }
    // Another account is served, after a waiting third call of the first.
    let waiting = spawn(asked("/fast", USER));
    let of_bob = patiently(gateway.app().tools.call(asked("/fast", "bob"))).await;
    assert_eq!(of_bob.content, "HTTP 200\n\nfast");
    assert!(!waiting.is_finished());
    let soon = ToolInvocation {
        deadline: Instant::now() + Duration::from_millis(50),
        ..asked("/fast", USER)
    };
    let late = patiently(gateway.app().tools.call(soon)).await;
    assert!(
        late.failed && late.content.contains("TOO_MANY_AT_ONCE"),
        "{late:?}"
    );
    // At `/mcp`, a client is refused at once.
    let message = crate::mcp::request(
        "tools/call",
        json!({ "name": "http_get", "arguments": { "url": upstream.base_url() } }),
    );
    let refused = gateway.client().post("/mcp", &message).await;
    refused.error(429, "TOO_MANY_AT_ONCE");
    assert_eq!(upstream.count(), 3);
    gate.open();
    for call in slow {
        assert_eq!(call.await.expect("no panic").content, "HTTP 200\n\nslow");
    }
    assert_eq!(waiting.await.expect("no panic").content, "HTTP 200\n\nfast");
}

/// An integration is available to the plans and the users of its operator's list: in swarms, in calls of agents, and
/// at `/mcp`.
#[tokio::test]
async fn an_integration_serves_the_plans_and_users_that_it_names() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::new(200).body("items"));
    let base = upstream.base_url();
    let integration = |id: &str, whom: &str| {
        format!("[integrations.{id}]\nbase_url = \"{base}/{id}\"\nprivate = true\n{whom}\n")
    };
    let tables = [
        integration("open", ""),
        integration("for-pro", "plans = [\"pro\"]"),
        integration("for-bob", "users = [\"bob\"]"),
        integration(
            "for-guru-and-alice",
            "plans = [\"guru\"]\nusers = [\"alice\"]",
        ),
    ];
    let gateway = Gateway::builder()
        .tables(&tables.concat())
        .upstream("scripted", &upstream)
        .swarms()
        .start()
        .await;
    let tools = &gateway.app().tools;
    let ids = ["open", "for-pro", "for-bob", "for-guru-and-alice"];
    for (user, plan, allowed) in [
        (
            "alice",
            Plan::Pro,
            &["open", "for-pro", "for-guru-and-alice"][..],
        ),
        ("alice", Plan::Free, &["open", "for-guru-and-alice"]),
        (
            "bob",
            Plan::Guru,
            &["open", "for-bob", "for-guru-and-alice"],
        ),
        ("carol", Plan::Free, &["open"]),
    ] {
        let account = AccountId(user.to_owned());
        let mut offered = tools.integrations_for(&account, plan);
        offered.sort();
        let mut expected: Vec<_> = allowed.iter().map(|id| (*id).to_owned()).collect();
        expected.sort();
        assert_eq!(offered, expected, "{user} on {plan}");
        for id in ids {
            let asked = ToolInvocation {
                account: account.clone(),
                plan,
                integrations: ids.map(str::to_owned).to_vec(),
                ..call("api_call", json!({ "integration": id, "path": "/items" }))
            };
            let outcome = tools.call(asked).await;
            match allowed.contains(&id) {
                true => assert_eq!(
                    outcome.content, "HTTP 200\n\nitems",
                    "{user} on {plan}: {id}"
                ),
                false => assert!(blocked(&outcome).starts_with("policy:"), "{outcome:?}"),
            }
        }
    }
    // A swarm is refused by the field, and `/mcp` does not list others' integrations.
    gateway.set_plan("guru").await;
    let mut agent = crate::swarms::agent("one");
    agent["integrations"] = json!(["open", "for-pro"]);
    let refused = gateway
        .client()
        .post("/swarms", &crate::swarms::swarm(&[agent]))
        .await;
    let refused = refused.error(403, "INTEGRATION_NOT_ALLOWED");
    assert_eq!(refused["param"], "agents[0].integrations[1]");
    let arguments = json!({ "integration": "for-pro", "path": "/items" });
    let message = crate::mcp::request(
        "tools/call",
        json!({ "name": "api_call", "arguments": arguments }),
    );
    let called = gateway.client().post("/mcp", &message).await.json();
    assert_eq!(called["result"]["isError"], true, "{called}");
    let served = upstream.count();
    let arguments = json!({ "integration": "open", "path": "/items" });
    let message = crate::mcp::request(
        "tools/call",
        json!({ "name": "api_call", "arguments": arguments }),
    );
    let called = gateway.client().post("/mcp", &message).await.json();
    assert_eq!(called["result"]["isError"], false, "{called}");
    assert_eq!(upstream.count(), served + 1);
}

#[tokio::test]
async fn a_tool_that_may_reach_every_host_reaches_no_denied_one() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::new(200).body("x"));
    let at = upstream.address();
    let tables = format!(
        "[tools.http_get]\nprivate = [\"{at}\", \"localhost:{}\"]\ndenied_hosts = [\"127.0.0.1\", \"*.example.com\"]\n",
        at.port()
    );
    let gateway = Gateway::builder().tables(&tables).start().await;
    // An IP address, the address of a name, and a name.
    for url in [
        upstream.base_url(),
        format!("http://localhost:{}/", at.port()),
        "https://a.example.com/".to_owned(),
    ] {
        let outcome = run(&gateway, "http_get", json!({ "url": url })).await;
        let why = blocked(&outcome);
        assert!(
            why.contains("the policy excludes this host"),
            "{url}: {why}"
        );
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn a_page_is_fetched_and_the_call_is_recorded() {
    let upstream = Upstream::start().await;
    let page = Reply::new(200)
        .header("content-type", "text/plain")
        .body("A page");
    upstream.will(page.header("set-cookie", "a=b").header("x-secret", "c"));
    let gateway = reaching(&upstream, "").start().await;
    let url = format!("{}/page?q=1#part", upstream.base_url());
    let outcome = run(&gateway, "http_get", json!({ "url": url })).await;
    assert_eq!(
        outcome.content,
        "HTTP 200\ncontent-type: text/plain\n\nA page"
    );
    assert!(!outcome.failed);
    let record = outcome.record;
    assert_eq!(record.tool, "http_get");
    assert_eq!(record.status, CallStatus::Success);
    assert_eq!(record.url, format!("{}/page?q=1", upstream.base_url()));
    assert_eq!(
        (record.response_status, record.blocked_reason),
        (Some(200), None)
    );
    assert!(record.latency_ms > 0.0);
    let component = guests::bundled("http_get");
    assert_eq!(record.digest, Some(Digest::of(&component).to_string()));
    let request = upstream.next_request().await;
    assert_eq!((&*request.method, &*request.path), ("GET", "/page?q=1"));
    assert_eq!(request.header("idempotency-key"), None, "a read has none");

    let answer = gateway
        .admin("olivia")
        .await
        .get("/admin/plugins/http_get")
        .await
        .json();
    assert_eq!(answer["kind"], "tool");
    assert_eq!(answer["plugins"][0]["requests"], 1);
}

#[tokio::test]
async fn what_is_posted_has_its_idempotency_key_and_what_comes_back_is_cut() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::new(201).body("äx".repeat(1_000)));
    let at = upstream.address();
    let tables = format!("[tools.http_post]\nprivate = [\"{at}\"]\nresult_bytes = 1000\n");
    let gateway = Gateway::builder().tables(&tables).start().await;
    let url = format!("{}/items", upstream.base_url());
    let asked =
        json!({ "url": url, "body": { "name": "a" }, "headers": { "accept": "text/html" } });
    let outcome = run(&gateway, "http_post", asked).await;
    assert!(!outcome.failed, "{outcome:?}");
    assert!(
        outcome.content.starts_with("HTTP 201\n\näxäx"),
        "{}",
        outcome.content
    );
    assert!(
        outcome.content.ends_with("\n[cut: 1000 of 3010 bytes]"),
        "{}",
        outcome.content
    );
    assert_eq!(outcome.record.response_status, Some(201));
    let request = upstream.next_request().await;
    assert_eq!(request.json(), json!({ "name": "a" }));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("accept"), Some("text/html"));
    assert_eq!(request.header("idempotency-key"), Some("key-1"));
}

#[tokio::test]
async fn a_webhook_of_the_agents_is_told_signed_and_no_other_url() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::new(204));
    let gateway = reaching(&upstream, "").start().await;
    let port = upstream.address().port();
    let (hook, other) = (
        format!("http://localhost:{port}/hook"),
        format!("http://localhost:{port}/other"),
    );
    let asked = |url: &str| ToolInvocation {
        webhook_urls: vec![hook.clone()],
        ..call("webhook", json!({ "url": url, "body": { "done": true } }))
    };
    let outcome = gateway.app().tools.call(asked(&other)).await;
    assert!(outcome.failed);
    assert!(
        outcome.content.contains("must be one of"),
        "{}",
        outcome.content
    );
    let outcome = gateway.app().tools.call(asked(&hook)).await;
    assert_eq!(
        blocked(&outcome),
        "scheme: only https is allowed here, not http; nothing was sent"
    );

    let plainly = format!("[tools.webhook]\nprivate = [\"localhost:{port}\"]\nplain_http = true\n");
    let gateway = Gateway::builder().tables(&plainly).start().await;
    let told = |account: &str, key: &str| ToolInvocation {
        webhook_urls: vec![hook.clone()],
        account: AccountId(account.to_owned()),
        idempotency_key: key.to_owned(),
        ..call("webhook", json!({ "body": { "done": true } }))
    };
    let mut secrets = Vec::new();
    for account in [USER, "bob"] {
        let outcome = gateway.app().tools.call(told(account, "key-7")).await;
        assert_eq!(outcome.content, "HTTP 204\n", "{outcome:?}");
        let request = upstream.next_request().await;
        assert_eq!(request.json(), json!({ "done": true }));
        let header = |name: &str| request.header(name).expect("it is there").to_owned();
        assert_eq!(header("webhook-id"), "key-7");
        let secret = gateway
            .app()
            .tools
            .webhook_secret(&AccountId(account.to_owned()));
        let secret = secret.expect("there is a key").expose().to_owned();
        let key = STANDARD.decode(secret.strip_prefix("whsec_").expect("a prefix"));
        let mut mac = Hmac::<Sha256>::new_from_slice(&key.expect("base64")).expect("any length");
        mac.update(format!("key-7.{}.", header("webhook-timestamp")).as_bytes());
        mac.update(&request.body);
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        assert_eq!(header("webhook-signature"), format!("v1,{signature}"));
        secrets.push(secret);
    }
    assert_ne!(
        secrets[0], secrets[1],
        "who knows one cannot forge for the other"
    );
    let none = gateway
        .app()
        .tools
        .call(call("webhook", json!({ "body": {} })))
        .await;
    assert_eq!(none.content, "You have no webhooks.");
}

#[tokio::test]
async fn an_integration_is_called_with_its_credential_that_nobody_sees() {
    let upstream = Upstream::start().await;
    let spelled = [
        SECRET.to_owned(),
        STANDARD.encode(SECRET),
        STANDARD.encode(format!("user:{SECRET}")),
        SECRET.bytes().map(|byte| format!("{byte:02x}")).collect(),
        SECRET
            .replace('/', "%2F")
            .replace('+', "%2B")
            .replace('=', "%3D"),
        SECRET.replace('/', "\\/"),
    ];
    let echo = Reply::new(200).header("etag", &format!("\"{SECRET}\""));
    upstream.always(echo.body(spelled.join(" | ")));
    let tables = format!(
        "[integrations.tracker]\nbase_url = \"{}/v2\"\npaths = [\"/items\"]\nmethods = [\"GET\", \"POST\"]\n\
         credential = \"tracker\"\nprivate = true\n{}",
        upstream.base_url(),
        credential(&upstream, &["GET"])
    );
    let gateway = Gateway::builder().tables(&tables).start().await;
    let tools = &gateway.app().tools;
    let asked = |arguments: Value| ToolInvocation {
        integrations: vec!["tracker".to_owned()],
        ..call("api_call", arguments)
    };
    let query = json!({ "q": SECRET });
    let get = json!({ "integration": "tracker", "path": "/items/1", "query": query });
    let outcome = tools.call(asked(get)).await;
    assert!(!outcome.failed, "{outcome:?}");
    let request = upstream.next_request().await;
    assert_eq!(
        request.header("authorization"),
        Some(&*format!("Bearer {SECRET}"))
    );
    assert!(
        request.path.starts_with("/v2/items/1?q="),
        "{}",
        request.path
    );
    let shown = format!("{outcome:?}");
    // A base64 digit's bits of the neighbours may stay; no part of the secret's middle may.
    for secret in spelled {
        let middle = &secret[4..secret.len() - 6];
        assert!(!shown.contains(middle), "{middle} in {shown}");
    }
    assert!(
        outcome.record.url.contains("/v2/items/1?q=***"),
        "{}",
        outcome.record.url
    );

    for (arguments, reason) in [
        (
            json!({ "integration": "tracker", "path": "/other" }),
            "policy: the policy does not allow this path",
        ),
        (
            json!({ "integration": "tracker", "path": "/items/../other" }),
            "does not allow this path",
        ),
        (
            json!({ "integration": "tracker", "path": "/items/%2e%2e/other" }),
            "nothing was sent",
        ),
        (
            json!({ "integration": "tracker", "path": "/items", "method": "DELETE" }),
            "policy: the policy does not allow this method; nothing was sent",
        ),
        (
            json!({ "integration": "tracker", "path": "/items", "method": "POST", "body": {} }),
            "credential: the credential tracker is bound to another method; nothing was sent",
        ),
        (
            json!({ "integration": "other", "path": "/items" }),
            "\"other\" is not an integration",
        ),
    ] {
        let outcome = tools.call(asked(arguments.clone())).await;
        let why = blocked(&outcome);
        assert!(why.contains(reason), "{arguments}: {why}");
        assert!(!why.contains(SECRET), "{why}");
    }
    assert_eq!(upstream.count(), 1, "nothing of these was sent");
}

#[tokio::test]
async fn what_a_tool_brings_about_is_known_before_it_is_called() {
    let tables = "[integrations.reads]\nbase_url = \"https://a.example\"\n\
                  [integrations.writes]\nbase_url = \"https://b.example\"\nmethods = [\"POST\"]\n\
                  [integrations.keyed]\nbase_url = \"https://c.example\"\nmethods = [\"PUT\"]\neffect = \"idempotent\"\n";
    let gateway = Gateway::builder()
        .plugin("unknown", &guests::tool("x"))
        .tables(tables)
        .start()
        .await;
    let tools = &gateway.app().tools;
    for (name, effect) in [
        ("http_get", Effect::Read),
        ("http_post", Effect::Unsafe),
        ("webhook", Effect::Idempotent),
        ("api_call", Effect::Unsafe),
        ("unknown", Effect::Unsafe),
    ] {
        let described = tools.describe(name).expect("it is there");
        assert_eq!(described.effect, effect, "{name}");
        assert_eq!(described.input_schema["type"], "object", "{name}");
        assert!(!described.description.is_empty());
    }
    assert_eq!(tools.describe("demo"), None, "an adapter is no tool");
    assert_eq!(tools.describe("none"), None);
    assert!(tools.has_integration("reads") && !tools.has_integration("none"));
    let own = ["reads", "writes", "keyed"].map(str::to_owned);
    for (arguments, own, effect) in [
        (json!({ "integration": "reads" }), &own[..], Effect::Read),
        (
            json!({ "integration": "keyed" }),
            &own[..],
            Effect::Idempotent,
        ),
        (json!({ "integration": "writes" }), &own[..], Effect::Unsafe),
        (json!({}), &own[..], Effect::Unsafe),
        (json!({}), &own[..1], Effect::Read),
        (json!({ "integration": "writes" }), &own[..1], Effect::Read),
    ] {
        let known = tools.effect("api_call", &arguments.to_string(), own);
        assert_eq!(known, effect, "{arguments} of {own:?}");
    }
}

#[tokio::test]
async fn a_model_is_told_what_is_wrong_with_its_arguments() {
    let gateway = Gateway::start().await;
    for (arguments, told) in [
        ("{", "are no JSON"),
        ("[]", "the whole must be an object"),
        ("{}", "`url` is missing"),
        (
            r#"{"url":"https://example.com","verb":"PUT"}"#,
            "`verb` is unknown; there is",
        ),
    ] {
        let asked = ToolInvocation {
            arguments: arguments.to_owned(),
            ..call("http_get", json!({}))
        };
        let outcome = gateway.app().tools.call(asked).await;
        assert!(
            outcome.failed && outcome.content.contains(told),
            "{}",
            outcome.content
        );
        assert_eq!(
            outcome.record.status,
            CallStatus::Success,
            "nobody forbade it"
        );
    }
    let outcome = run(&gateway, "none", json!({})).await;
    assert!(
        outcome.failed && outcome.content.contains("no tool"),
        "{outcome:?}"
    );
    assert_eq!(outcome.record.digest, None);
}

#[tokio::test]
async fn a_slot_reaches_only_what_its_operator_allows() {
    let upstream = Upstream::start().await;
    let base = upstream.base_url();
    let narrow = format!(
        "[tools.scheming]\nhosts = [\"127.0.0.1\", \"*.example.com\"]\nmethods = [\"GET\"]\npaths = [\"/v1\"]\n\
         plain_http = true\nprivate = [\"{}\"]\n",
        upstream.address()
    );
    let gateway = Gateway::builder()
        .plugin("scheming", guests::scheming())
        .plugin("unlisted", guests::scheming())
        .tables(&narrow)
        .start()
        .await;
    let fetch = |request: Value| json!({ "behave": "fetch", "requests": [request] });
    for (request, why) in [
        (
            json!({ "url": format!("{base}/v2") }),
            "policy: the policy does not allow this path",
        ),
        (
            json!({ "url": format!("{base}/v1"), "method": "POST" }),
            "policy: the policy does not allow this method",
        ),
        (
            json!({ "url": "http://canary.attacker.test/v1" }),
            "the host's name",
        ),
        (
            json!({ "url": "http://canary.attacker.dev/v1" }),
            "policy: the policy does not list this host",
        ),
        (
            json!({ "url": "http://169.254.169.254/v1" }),
            "ip: the host is an address that is not public",
        ),
        (json!({ "url": "ftp://127.0.0.1/v1" }), "scheme: "),
        (
            json!({ "url": format!("{base}/v1"), "headers": [["host", "evil.example"]] }),
            "header: the header host",
        ),
        (
            json!({ "url": format!("{base}/v1"), "headers": [["authorization", "x"]] }),
            "header: the header authorization",
        ),
        (
            json!({ "url": format!("{base}/v1"), "headers": [["accept", "a\r\nx-evil: b"]] }),
            "header: a header",
        ),
        (
            json!({ "url": format!("{base}/v1"), "credential": "tracker" }),
            "credential: \"tracker\" is not the call's, which has none",
        ),
    ] {
        let outcome = run(&gateway, "scheming", fetch(request.clone())).await;
        let record = &outcome.record;
        let reason = record.blocked_reason.as_deref().unwrap_or_default();
        assert_eq!(record.status, CallStatus::Blocked, "{request}");
        assert!(
            reason.contains(why) && reason.ends_with("nothing was sent"),
            "{request}: {reason}"
        );
        assert!(
            outcome.content.contains("Blocked"),
            "the tool is told: {}",
            outcome.content
        );
    }
    let outcome = run(&gateway, "unlisted", json!({ "behave": "well" })).await;
    assert!(
        blocked(&outcome).contains("[tools.unlisted]"),
        "{outcome:?}"
    );
    assert_eq!((upstream.count(), upstream.connections()), (0, 0));
}

#[tokio::test]
async fn a_redirect_leads_nowhere_that_is_not_allowed() {
    let upstream = Upstream::start().await;
    let gateway = reaching(&upstream, &scheming(&upstream, "")).start().await;
    let fetch = json!({ "behave": "fetch", "requests": [
        { "url": format!("{}/v2", upstream.base_url()), "credential": "tracker" },
    ] });
    for location in [
        "http://169.254.169.254/latest",
        "http://[::1]/",
        "https://collector.dev/?secret",
    ] {
        upstream.will(Reply::redirect(302, location));
        let outcome = run(&gateway, "scheming", fetch.clone()).await;
        let record = &outcome.record;
        let reason = record.blocked_reason.as_deref().expect("it is blocked");
        assert!(reason.starts_with("redirect: "), "{location}: {reason}");
        assert!(
            reason.ends_with("something was sent"),
            "{location}: {reason}"
        );
    }
    assert_eq!(upstream.count(), 3);
}

#[tokio::test]
async fn no_scheming_tool_gets_a_credential_out() {
    let upstream = Upstream::start().await;
    let base = upstream.base_url();
    let echo = Reply::new(200).header("location", &format!("/?{SECRET}"));
    upstream.always(echo.body(format!("Bearer {SECRET} {}", STANDARD.encode(SECRET))));
    let gateway = reaching(&upstream, &scheming(&upstream, "")).start().await;
    let run = async |arguments: Value| {
        // A credential of the task's own, which only the host has, too.
        let own = Credential {
            name: "own".to_owned(),
            value: Secret::new("Basic b3duLXNlY3JldC0wMTIzNDU2Nzg5".to_owned()),
            origin: base.parse().expect("an origin"),
            methods: vec![http::Method::GET],
            path_prefix: "/mine".to_owned(),
            header: http::header::AUTHORIZATION,
        };
        let asked = ToolInvocation {
            credentials: vec![own],
            ..call("scheming", arguments)
        };
        gateway.app().tools.call(asked).await
    };
    let seen = run(json!({ "behave": "context" })).await;
    assert!(
        seen.content.contains("tracker") && seen.content.contains("own"),
        "{seen:?}"
    );
    let mut all = format!("{seen:?}");
    let asked = json!({ "behave": "fetch", "requests": [
        { "url": format!("{base}/v2/x"), "credential": "tracker" },
        { "url": format!("{base}/mine"), "credential": "own" },
        { "url": format!("{base}/elsewhere"), "credential": "tracker" },
        { "url": format!("http://localhost:{}/v2", upstream.address().port()), "credential": "tracker" },
        { "url": format!("{base}/v2/y"), "credential": "tracker", "headers": [["authorization", "mine"]] },
    ] });
    let outcome = run(asked).await;
    all.push_str(&format!("{outcome:?}"));
    let lines: Vec<_> = outcome.content.lines().collect();
    assert!(
        lines[0].starts_with("200 ") && lines[1].starts_with("200 "),
        "{lines:?}"
    );
    for line in &lines[2..] {
        assert!(line.contains("Blocked"), "{line}");
    }
    assert_eq!(upstream.count(), 2, "{lines:?}");
    let sent = upstream.requests();
    assert_eq!(
        sent[0].header("authorization"),
        Some(&*format!("Bearer {SECRET}"))
    );
    assert_eq!(
        sent[1].header("authorization"),
        Some("Basic b3duLXNlY3JldC0wMTIzNDU2Nzg5")
    );
    for secret in [
        &SECRET[..12],
        "b3duLXNlY3JldC",
        &STANDARD.encode(SECRET)[..12],
    ] {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
}

#[tokio::test]
async fn a_tool_that_misbehaves_ends_alone() {
    let upstream = Upstream::start().await;
    let url = format!("{}/v2", upstream.base_url());
    upstream.always(Reply::new(200).body("x"));
    let tables = scheming(&upstream, "requests = 3\nseconds = 2");
    let gateway = reaching(&upstream, &tables).start().await;
    let well = json!({ "behave": "well" });
    for (command, told) in [
        (json!({ "behave": "spin" }), "The tool took too long"),
        (json!({ "behave": "trap" }), "The tool failed"),
        (json!({ "behave": "grow" }), "The tool failed"),
        (
            json!({ "behave": "flood", "bytes": 2 << 20 }),
            "The tool failed",
        ),
        (
            json!({ "behave": "post", "url": url, "bytes": 2 << 20 }),
            "The tool failed",
        ),
        // The tool sends further requests, and each is refused.
        (
            json!({ "behave": "fetch-for-ever", "url": url }),
            "The tool took too long",
        ),
        (json!({ "behave": "fail" }), "it failed"),
        (json!({ "behave": "nonsense" }), "unknown variant"),
    ] {
        let outcome = run(&gateway, "scheming", command.clone()).await;
        assert!(outcome.failed, "{command}: {outcome:?}");
        assert!(
            outcome.content.contains(told),
            "{command}: {}",
            outcome.content
        );
        assert_eq!(
            run(&gateway, "scheming", well.clone()).await.content,
            "ok",
            "{command}"
        );
    }
    assert_eq!(upstream.count(), 3, "more requests than a call may send");
    let outcome = run(
        &gateway,
        "scheming",
        json!({ "behave": "flood", "bytes": 40_000 }),
    )
    .await;
    assert!(
        outcome.content.ends_with("x\n[cut: 32768 of 40000 bytes]"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_call_ends_in_its_time_whoever_is_waited_for() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::drip(Duration::from_millis(100)));
    upstream.will(Reply::never());
    let gateway = reaching(&upstream, &scheming(&upstream, "seconds = 1"))
        .start()
        .await;
    let fetch = json!({ "behave": "fetch", "requests": [{ "url": format!("{}/v2", upstream.base_url()) }] });
    for _ in 0..2 {
        let outcome = run(&gateway, "scheming", fetch.clone()).await;
        let is_late =
            outcome.content.contains("Timeout") || outcome.content.contains("took too long");
        assert!(is_late, "{outcome:?}");
        assert_eq!(outcome.record.url, format!("{}/v2", upstream.base_url()));
    }
    let asked = ToolInvocation {
        deadline: Instant::now(),
        ..call("scheming", json!({ "behave": "spin" }))
    };
    let outcome = gateway.app().tools.call(asked).await;
    assert!(outcome.failed, "{outcome:?}");
}

#[tokio::test]
async fn a_tool_is_replaced_while_it_is_called_and_taken_out_of_service_when_it_traps() {
    let upstream = Upstream::start().await;
    let tables = scheming(&upstream, "") + "[plugins]\nquarantine_traps = 4\n";
    let gateway = reaching(&upstream, &tables).start().await;
    let admin = gateway.admin("olivia").await;
    let gate = Gate::new();
    upstream.will(Reply::new(200).body("late").after_gate(&gate));
    let fetch = json!({ "behave": "fetch", "requests": [{ "url": format!("{}/v2", upstream.base_url()) }] });
    let tools = gateway.app().tools.clone();
    let under_way = tokio::spawn(async move { tools.call(call("scheming", fetch)).await });
    gate.reached().await;

    let put = async |component: &[u8]| {
        let path = "/admin/plugins/scheming?activate=true";
        let answer = admin.put_component(path, component).await;
        assert!(answer.status.is_success(), "{}", answer.text());
    };
    put(&guests::tool("new")).await;
    assert_eq!(run(&gateway, "scheming", json!({})).await.content, "new");
    gate.open();
    let old = under_way.await.expect("it does not panic");
    assert!(old.content.contains("late"), "it ends as it began: {old:?}");
    assert_ne!(
        old.record.digest,
        run(&gateway, "scheming", json!({})).await.record.digest
    );

    // A trapping component is rolled back to the earlier one.
    let culprit = guests::with_custom_section(guests::scheming(), 1);
    put(&culprit).await;
    for account in [USER, "bob", USER, "bob"] {
        let trap = ToolInvocation {
            account: AccountId(account.to_owned()),
            ..call("scheming", json!({ "behave": "trap" }))
        };
        assert!(gateway.app().tools.call(trap).await.failed);
    }
    patiently(async {
        while run(&gateway, "scheming", json!({})).await.content != "new" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let slot = admin.get("/admin/plugins/scheming").await.json();
    let plugins = slot["plugins"].as_array().expect("a list");
    let digest = Digest::of(&culprit).to_string();
    let culprit = plugins.iter().find(|plugin| plugin["digest"] == *digest);
    assert_eq!(culprit.expect("it is listed")["state"], "quarantined");
}

#[tokio::test]
async fn a_slot_takes_components_of_its_kind_alone_and_no_nonsense() {
    let gateway = Gateway::start().await;
    let admin = gateway.admin("olivia").await;
    let put = async |slot: &str, component: &[u8]| {
        admin
            .put_component(&format!("/admin/plugins/{slot}"), component)
            .await
    };
    let refused = async |slot: &str, component: &[u8], step: &str, why: &str| {
        let answer = put(slot, component).await;
        let error = answer.error(422, "PLUGIN_REFUSED");
        assert_eq!(error["step"], step, "{error}");
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains(why), "{message}");
    };
    let (adapter, tool) = (guests::answering("aa"), guests::tool("x"));
    refused("http_get", &adapter, "world", "is for tools").await;
    refused("demo", &tool, "world", "is for adapters").await;
    assert_eq!(put("fresh", &tool).await.status, 201);
    refused("fresh", &adapter, "world", "is for tools").await;
    let slot = admin.get("/admin/plugins/fresh").await.json();
    assert_eq!(slot["kind"], "tool");

    let object = r#"{"type":"object"}"#;
    let deep = format!("{}{}", "[".repeat(8_000), "]".repeat(8_000));
    for (name, description, schema, step, why) in [
        ("", "Does.", object, "describe", "name"),
        ("two words", "Does.", object, "describe", "name"),
        ("x", " ", object, "describe", "description"),
        (
            "x",
            "\u{1b}[31mDoes",
            object,
            "describe",
            "control characters",
        ),
        ("x", "Does.", "{", "self-test", "is no JSON"),
        ("x", "Does.", "{}", "self-test", "\"object\""),
        (
            "x",
            "Does.",
            r##"{"type":"object","$ref":"#"}"##,
            "self-test",
            "\"$ref\"",
        ),
        ("x", "Does.", &deep, "self-test", "is no JSON"),
        ("http_get", "Does.", object, "describe", "another slot"),
    ] {
        let component = guests::describing_tool(name, description, schema, "x");
        refused("nonsense", &component, step, why).await;
    }
}

#[tokio::test]
async fn settings_that_do_not_fit_are_named() {
    for (tables, complaint) in [
        ("[tools.x]\nhost = [\"a\"]", "unknown field"),
        ("[tools.x]\nmethods = [\"get\"]", "is none of GET"),
        (
            "[tools.x]\nhosts = [\"https://a.example\"]",
            "is none of api.example.com",
        ),
        (
            "[tools.x]\ncredentials = [\"c\"]",
            "`tools.x.credentials` names \"c\"",
        ),
        (
            "[tools.x]\nbytes = 2000000",
            "`tools.x`: `bytes` is more than",
        ),
        (
            "[integrations.i]\nbase_url = \"ftp://a.example\"",
            "`integrations.i`: `base_url` is neither",
        ),
        (
            "[integrations.i]\nbase_url = \"https://a.example\"\ncredential = \"c\"",
            "`credentials.c` does not exist",
        ),
        (
            "[integrations.i]\nbase_url = \"https://a.example\"\npaths = [\"v1\"]",
            "must begin with a slash",
        ),
        (
            "[credentials.c]\norigin = \"https://a.example/x\"\nsecret = { env = \"UNSET\" }",
            "`credentials.c`: `origin` has more than",
        ),
    ] {
        let error = match Config::from_toml(tables) {
            Err(error) => format!("{error:#}"),
            Ok(config) => match Rules::read(config.tools(), |_| None) {
                Err(problems) => problems.join("\n"),
                Ok(_) => panic!("nothing is wrong with {tables}"),
            },
        };
        assert!(error.contains(complaint), "{tables}: {error}");
    }
    // A missing tool keeps no gateway from starting: requests that need it are refused, by name.
    let upstream = Upstream::start().await;
    let tables = format!(
        "[tools.scheming]\nhosts = [\"*\"]\nplain_http = true\nprivate = [\"{}\"]\ncredentials = [\"c\"]\n\
         [credentials.c]\norigin = \"{}\"\nsecret = {{ env = \"WEIR_TEST_UNSET\" }}\n",
        upstream.address(),
        upstream.base_url()
    );
    let gateway = Gateway::builder()
        .plugin("scheming", guests::scheming())
        .tables(&tables)
        .start()
        .await;
    let fetch = json!({ "behave": "fetch", "requests": [{ "url": upstream.base_url(), "credential": "c" }] });
    let outcome = run(&gateway, "scheming", fetch).await;
    let reason = outcome.record.blocked_reason.expect("it is blocked");
    let expected = "credential: \"c\" is missing: the environment variable WEIR_TEST_UNSET is not set; nothing was sent";
    assert_eq!(reason, expected);
    assert_eq!(upstream.count(), 0);
}
