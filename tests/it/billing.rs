//! Charges of requests, for every way in which they end. Amounts are micro-credits.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tests::gateway::{USER, top_up};
use tests::scripts::{end, finish, start, text};
use tests::stores::Postgres;
use tests::{Client, Gate, Gateway, Reply, Upstream, chat, guests, patiently};
use tokio::time::{Duration, Instant};
use weir_ledger::verify::verify;
use weir_ledger::{AccountId, Action, Credits, OperationId, Pool, Refund};

use crate::console::Browser;

/// The price of tokens at the harness's models: 1 and 2 USD per million, times 1.4.
fn price(tokens_input: u64, tokens_output: u64) -> i64 {
    ((tokens_input + 2 * tokens_output) * 1_400) as i64
}

/// Long enough for the input that upstreams report here: reports are accepted up to twice the host's estimate.
fn prompt() -> String {
    "hello ".repeat(80)
}

/// An entry for a charge.
#[derive(Debug, PartialEq, Eq)]
struct Charge {
    credits: i64,
    source: String,
    source_id: Option<String>,
    provider: String,
    tokens_input: i64,
    tokens_output: i64,
    estimated: bool,
}

async fn charges(gateway: &Gateway) -> Vec<Charge> {
    type Row = (i64, String, Option<String>, String, i64, i64, Option<i64>);
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT plan_delta + top_up_delta, source, source_id, provider, tokens_input, tokens_output, \
         estimated_at FROM entries WHERE hold_id IS NOT NULL AND kind <> 'release' ORDER BY number",
    )
    .fetch_all(gateway.folded_database().await.reader())
    .await
    .expect("the entries can be read");
    rows.into_iter()
        .map(|row| Charge {
            credits: -row.0,
            source: row.1,
            source_id: row.2,
            provider: row.3,
            tokens_input: row.4,
            tokens_output: row.5,
            estimated: row.6.is_some(),
        })
        .collect()
}

async fn available(gateway: &Gateway) -> i64 {
    let user = AccountId(USER.into());
    let account = gateway.app().ledger.find_account(&user);
    let account = account.await.expect("an answer").expect("an account");
    let pools = account.available();
    pools.plan.micro() + pools.top_up.micro()
}

/// Waits for all work, and checks that the ledger is sound and no hold is open.
pub(crate) async fn is_settled(gateway: &Gateway) {
    patiently(async {
        while !gateway.app().tasks.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let app = gateway.app();
    let violations = verify(&app.database, app.clock.now()).await;
    assert_eq!(violations.expect("an answer"), []);
    let open: i64 =
        sqlx::query_scalar("SELECT CAST(COUNT(*) AS BIGINT) FROM holds WHERE expired_at IS NULL")
            .fetch_one(app.database.reader())
            .await
            .expect("an answer");
    assert_eq!(open, 0, "holds are open");
}

/// An entry has what a receipt needs: the counts as they were reported and seen, and the prices.
#[tokio::test]
async fn the_facts_behind_a_charge_are_in_its_entry() {
    let postgres = Postgres::shared().create_database().await;
    for builder in [Gateway::builder(), Gateway::builder().postgres(&postgres)] {
        let upstream = Upstream::start().await;
        let gateway = builder.upstream("scripted", &upstream).start().await;
        // More than weir believes of this prompt: the charge is for less.
        upstream.will(Reply::chat_with_usage("fine", 100_000, 7));
        let answer = gateway.chat("scripted", &prompt()).await;
        let charged = answer.json()["usage"]["prompt_tokens"].clone();
        assert!(charged.as_u64() < Some(100_000), "{charged}");
        is_settled(&gateway).await;
        let facts: Vec<(String, i64)> =
            sqlx::query_as("SELECT receipt, tokens_input FROM entries WHERE kind = 'settlement'")
                .fetch_all(gateway.folded_database().await.reader())
                .await
                .expect("the entries can be read");
        let [(facts, tokens_input)] = &facts[..] else {
            panic!("one charge: {facts:?}");
        };
        assert_eq!(charged, *tokens_input);
        assert!(facts.len() <= 200, "{facts}");
        let facts: Value = serde_json::from_str(facts).expect("JSON");
        let mut expected = json!({
            "reported": { "input": 100_000, "output": 7 },
            "prices": { "input": 1_000_000_000, "output": 2_000_000_000 },
            "factors": [14_000],
            "catalog": 0,
        });
        expected["seen"] = json!([facts["seen"][0], "fine".len()]);
        assert_eq!(facts, expected);
        assert!(facts["seen"][0].as_u64() >= Some(prompt().len() as u64));
    }
}

/// Sets the user's balance to exactly this amount.
pub(crate) async fn leave(gateway: &Gateway, credits: Credits) {
    let app = gateway.app();
    let account = AccountId(USER.into());
    let act = async |action| {
        let deadline = Instant::now() + Duration::from_secs(10);
        let done = app.ledger.submit(&account, action, deadline).await;
        done.expect("credits can be taken");
    };
    // The first period begins with the plan's credits.
    act(Action::ResetPeriod).await;
    let found = app.ledger.find_account(&account).await;
    let found = found.expect("an answer").expect("an account").available();
    for (pool, credits) in [(Pool::Plan, found.plan), (Pool::TopUp, found.top_up)] {
        act(Action::Refund(Refund {
            id: OperationId(weir_storage::ids::operator_action_id()),
            pool,
            credits,
        }))
        .await;
    }
    if credits > Credits::ZERO {
        top_up(app, USER, credits).await;
    }
    assert_eq!(available(gateway).await, credits.micro());
}

fn micro(number: &Value) -> i64 {
    (number.as_f64().expect("a number") * 1e6).round() as i64
}

#[tokio::test]
async fn a_request_is_charged_what_its_upstream_reported() {
    let postgres = Postgres::shared().create_database().await;
    for builder in [Gateway::builder(), Gateway::builder().postgres(&postgres)] {
        let upstream = Upstream::start().await;
        let gateway = builder.upstream("scripted", &upstream).start().await;
        let before = available(&gateway).await;
        upstream.will(Reply::chat_with_usage("fine", 100, 7));
        let answer = gateway.chat("scripted", &prompt()).await;
        assert_eq!(micro(&answer.json()["usage"]["credits"]), price(100, 7));
        upstream.will(Reply::chat_stream_with_usage(["fi", "ne"], 90, 8));
        let stream = gateway.stream("scripted", &prompt()).await;
        let events = stream.rest().await;
        let last = tests::chunks(&events).pop().expect("a last chunk");
        assert_eq!(micro(&last["usage"]["credits"]), price(90, 8));

        is_settled(&gateway).await;
        let spent = price(100, 7) + price(90, 8);
        assert_eq!(before - available(&gateway).await, spent);
        let charges = charges(&gateway).await;
        assert_eq!(charges.len(), 2);
        let [first, _] = &charges[..] else {
            unreachable!()
        };
        assert_eq!(
            (first.credits, &*first.source, &*first.provider),
            (price(100, 7), "api_key", "scripted")
        );
        assert_eq!(
            first.source_id.as_deref().map(str::len),
            Some(64),
            "the key's hash"
        );
        assert!(
            !first.estimated
                && !first
                    .source_id
                    .as_deref()
                    .is_some_and(|id| id.contains("inf_"))
        );
    }
}

#[tokio::test]
async fn each_way_in_has_its_source() {
    let gateway = Gateway::builder()
        .settings("internal_listen = \"127.0.0.1:0\"")
        .start()
        .await;
    let web = gateway
        .web("bob")
        .post("/chat", &chat("demo", "hello"))
        .await;
    assert_eq!(web.status, 200, "{}", web.text());
    let mut body = chat("demo", "hello");
    body["user_id"] = USER.into();
    body["task_id"] = "task_7".into();
    let agent = gateway.service(&["model:call"]);
    let agent = agent.post("/internal/agent/code", &body).await;
    assert_eq!(agent.status, 200, "{}", agent.text());
    let mut seen: Vec<_> = charges(&gateway)
        .await
        .into_iter()
        .map(|charge| (charge.source, charge.source_id))
        .collect();
    seen.sort();
    let task = Some("task_7".to_owned());
    assert_eq!(seen, [("agent".to_owned(), task), ("web".to_owned(), None)]);
}

/// A hold for an output limit that the client did not ask for must not block the next request.
#[tokio::test]
async fn no_output_limit_in_a_request_does_not_block_the_next_request() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat("slow").after_gate(&gate));
    upstream.will(Reply::chat("quick"));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .credits(0)
        .start()
        .await;
    let slow = gateway.chat("scripted", "hello");
    let quick = async {
        patiently(upstream.next_request()).await;
        let answer = gateway.chat("scripted", "hello").await;
        gate.open();
        answer
    };
    let (slow, quick) = tokio::join!(slow, quick);
    assert_eq!(
        (slow.content(), quick.content()),
        ("slow".into(), "quick".into())
    );
    let limits = upstream.requests().into_iter();
    let limits = limits.map(|request| request.json()["max_completion_tokens"].as_u64());
    let limits: Vec<_> = limits.flatten().collect();
    // A quarter of the available credits: of those that the first request left.
    assert!(
        limits[0] > 44_000 && (33_000..34_000).contains(&limits[1]),
        "{limits:?}"
    );
}

#[tokio::test]
async fn the_links_of_a_refusal_open_pages_in_a_browser() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    leave(&gateway, Credits::ZERO).await;
    let error = gateway.chat("scripted", "hello").await;
    let links = error.error(429, "QUOTA_EXCEEDED")["links"].clone();
    let mut alice = Browser::of(&gateway, "alice").await;
    for (name, part, text) in [
        ("upgrade", "plan", "Guru plan"),
        ("topup", "credits", "5,000 credits"),
    ] {
        let url = links[name].as_str().expect("a URL");
        let origin = format!("http://{}", gateway.address());
        let (path, fragment) = url.split_once('#').expect("a part of a page");
        let path = path.strip_prefix(&origin).expect("an absolute URL");
        assert_eq!(fragment, part);
        let html = alice.page(path).await;
        assert!(html.contains(&format!("id=\"{part}\"")), "{html}");
        assert!(html.contains(text), "{html}");
        // A browser without a session is redirected through the sign-in page.
        let mut nobody = Browser::new(&gateway);
        let answer = nobody.get(path).await;
        assert_eq!(answer.status, 303, "{}", answer.text());
        let sign_in = answer.headers["location"].to_str().expect("text");
        let html = nobody.page(sign_in).await;
        assert!(
            html.contains(&format!("name=\"next\" value=\"{path}\"")),
            "{html}"
        );
    }

    // The operator's own page.
    let pages = "[payments]\nupgrade_url = \"https://app.example/plans\"\ntopup_url = \"https://app.example/credits\"\n";
    let builder = Gateway::builder().upstream("scripted", &upstream);
    let gateway = builder.tables(pages).start().await;
    leave(&gateway, Credits::ZERO).await;
    let error = gateway.chat("scripted", "hello").await;
    let links = error.error(429, "QUOTA_EXCEEDED")["links"].clone();
    let own =
        json!({ "upgrade": "https://app.example/plans", "topup": "https://app.example/credits" });
    assert_eq!(links, own);
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn a_balance_equal_to_the_price_passes_and_one_less_does_not() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 10, 5));
    let gateway = Gateway::with_upstream(&upstream).await;
    leave(&gateway, Credits::ZERO).await;
    let refused = gateway.chat("scripted", "hello").await;
    let error = refused.error(429, "QUOTA_EXCEEDED");
    let required = micro(&error["required_credits"]);
    assert_eq!(error["available_credits"], 0);
    assert_eq!(error["shortfall_credits"], error["required_credits"]);
    assert!(error["links"]["upgrade"].is_string() && error["links"]["topup"].is_string());
    assert_eq!(refused.headers["x-should-retry"], "false");

    leave(&gateway, Credits::from_micro(required - 1)).await;
    let error = gateway
        .chat("scripted", "hello")
        .await
        .error(429, "QUOTA_EXCEEDED");
    assert_eq!(micro(&error["shortfall_credits"]), 1);
    let stream = gateway.stream("scripted", "hello").await;
    assert_eq!(stream.status, 429, "a stream is refused before it begins");
    assert_eq!(upstream.count(), 0, "a refusal costs no upstream call");

    leave(&gateway, Credits::from_micro(required)).await;
    assert_eq!(gateway.chat("scripted", "hello").await.status, 200);
    assert_eq!(available(&gateway).await, required - price(10, 5));
    is_settled(&gateway).await;
}

/// All requests pass the check before the first charge is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_do_not_spend_the_same_credits() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.always(Reply::chat_with_usage("fine", 10, 5).after_gate(&gate));
    let gateway = Gateway::with_upstream(&upstream).await;
    leave(&gateway, Credits::ZERO).await;
    // Each hold covers this limit. Without one, the first holds would be larger.
    let mut body = chat("scripted", "hello");
    body["max_tokens"] = json!(1_000);
    let refused = gateway.client().post("/chat", &body).await;
    let required = micro(&refused.error(429, "QUOTA_EXCEEDED")["required_credits"]);
    leave(&gateway, Credits::from_micro(5 * required)).await;
    let (sender, mut refusals) = tokio::sync::mpsc::unbounded_channel();
    let asks = (0..50).map(|_| {
        let (client, sender, body) = (gateway.client(), sender.clone(), body.clone());
        async move {
            let answer = client.post("/chat", &body).await;
            if answer.status == 429 {
                let _ = sender.send(());
            }
            answer.status.as_u16()
        }
    });
    let opened = async {
        for _ in 0..45 {
            patiently(refusals.recv()).await;
        }
        gate.open();
    };
    let (statuses, ()) = tokio::join!(join_all(asks), opened);
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 5);
    assert_eq!(upstream.count(), 5);
    is_settled(&gateway).await;
}

#[tokio::test]
async fn a_retry_bills_once_at_the_price_of_the_upstream_that_answered() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.always(Reply::error(503, "overloaded"));
    second.always(Reply::chat_with_usage("fine", 100, 10));
    let gateway = Gateway::builder()
        .provider("first", "openai", Some(&first))
        .provider("second", "openai", Some(&second))
        .tables(
            "[models.both]\ncontext_window = 100000\nmax_output_tokens = 1000\n\
             default_output_tokens = 1000\nprice = { input = 100, output = 200 }\n\
             upstreams = [{ provider = \"first\" }, { provider = \"second\", price = { input = 1, output = 2 } }]\n",
        )
        .start()
        .await;
    let answer = gateway.chat("both", &prompt()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    is_settled(&gateway).await;
    assert_eq!((first.count(), second.count()), (2, 1));
    let charges = charges(&gateway).await;
    assert_eq!(charges.len(), 1);
    assert_eq!(
        (charges[0].credits, &*charges[0].provider),
        (price(100, 10), "second")
    );
    let requests = gateway.client().get("/usage/requests").await.json();
    let request = &requests["requests"][0];
    assert_eq!(
        (&request["provider"], &request["attempts"]),
        (&json!("second"), &json!(3)),
        "{request}"
    );
}

#[tokio::test]
async fn what_was_not_delivered_is_not_charged() {
    for reply in [
        Reply::error(400, "no"),
        Reply::error(401, "no"),
        Reply::error(500, "a long text of an error that no client asked for"),
        Reply::hang_up(),
        Reply::raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\nnonsense"),
        Reply::chat_with_usage("cut off", 10, 5).cut_after(100),
        Reply::chat_stream(["so ", "far"]).cut_after(100),
    ] {
        let upstream = Upstream::start().await;
        upstream.always(reply);
        let gateway = Gateway::with_upstream(&upstream).await;
        let before = available(&gateway).await;
        let plain = gateway.chat("scripted", "hello").await;
        assert_ne!(plain.status, 200, "{}", plain.text());
        let stream = gateway.stream("scripted", "hello").await;
        assert_ne!(stream.status, 200);
        is_settled(&gateway).await;
        assert!(upstream.count() >= 2);
        assert_eq!(available(&gateway).await, before);
        assert_eq!(charges(&gateway).await, []);
    }
}

#[tokio::test]
async fn a_stream_that_broke_off_is_charged_for_what_was_delivered() {
    let upstream = Upstream::start().await;
    let text = "twenty bytes of text";
    let reply = Reply::chat_stream([text, text, text]);
    let whole = reply.whole_body().len();
    upstream.will(reply.cut_after(whole * 2 / 3));
    let gateway = Gateway::with_upstream(&upstream).await;
    let stream = gateway.stream("scripted", "hello").await;
    assert!(!stream.is_whole().await);
    is_settled(&gateway).await;
    let charges = charges(&gateway).await;
    let [charge] = &charges[..] else {
        panic!("{charges:?}")
    };
    assert!(charge.estimated);
    // Five bytes of input; the output so far, a token for four bytes.
    assert_eq!(charge.tokens_input, 2);
    assert!([5, 10, 15].contains(&charge.tokens_output), "{charge:?}");
    assert_eq!(charge.credits, price(2, charge.tokens_output as u64));
}

/// Some upstreams report a first token with the first chunk, and the rest at the end.
#[tokio::test]
async fn what_is_reported_early_is_not_the_whole_charge_of_an_answer_that_was_cut() {
    let gateway = Gateway::builder()
        .guest("hostile", guests::misbehaving(), None)
        .start()
        .await;
    let usage = json!({
        "input_tokens": 5, "output_tokens": 1, "cache_read_tokens": null, "cache_write_short_tokens": null,
        "cache_write_long_tokens": null, "reasoning_tokens": null, "images": null, "other": [],
    });
    let command = json!({ "behave": "script", "steps": [
        { "Emit": [{ "Usage": usage }, start(0), text(0, &"x".repeat(2_000))] },
        { "Emit": [text(1, "of no block")] },
        "Done",
    ]});
    let stream = gateway.stream("hostile", &command.to_string()).await;
    assert!(!stream.is_whole().await, "it turns to nonsense");
    is_settled(&gateway).await;
    let charge = charges(&gateway).await.pop().expect("a charge");
    assert_eq!((charge.tokens_input, charge.tokens_output), (5, 500));
    assert!(charge.estimated);
}

/// The upstream did no work for them.
#[tokio::test]
async fn a_client_that_hangs_up_before_its_upstream_declines_pays_nothing() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::error(503, "overloaded").after_gate(&gate));
    let gateway = Gateway::with_upstream(&upstream).await;
    let client = gateway.client();
    let asking =
        tokio::spawn(async move { client.post("/chat", &chat("scripted", "hello")).await });
    patiently(upstream.next_request()).await;
    asking.abort();
    let _ = asking.await;
    gate.open();
    is_settled(&gateway).await;
    assert_eq!(charges(&gateway).await, []);
    assert_eq!(upstream.count(), 1, "and is not tried again");
}

#[tokio::test]
async fn an_answer_without_text_costs_what_was_reported() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::chat_with_usage("", 40, 0));
    upstream.will(Reply::chat_stream_with_usage([], 41, 0));
    let gateway = Gateway::with_upstream(&upstream).await;
    let plain = gateway.chat("scripted", &prompt()).await;
    assert_eq!(plain.status, 200, "{}", plain.text());
    assert!(gateway.stream("scripted", &prompt()).await.is_whole().await);
    is_settled(&gateway).await;
    let charged: Vec<_> = charges(&gateway).await.iter().map(|c| c.credits).collect();
    assert_eq!(charged, [price(40, 0), price(41, 0)]);
}

/// By mistake or on purpose: impossible counts are rejected in both directions.
#[tokio::test]
async fn usage_beyond_belief_neither_credits_nor_overcharges() {
    let gateway = Gateway::builder()
        .guest("hostile", guests::misbehaving(), None)
        .start()
        .await;
    let with_usage = |usage: Option<Value>, bytes: usize| {
        let long = "x".repeat(bytes);
        let mut emit = vec![start(0), text(0, &long), end(0)];
        emit.extend(usage.map(|usage| json!({ "Usage": usage })));
        emit.push(finish());
        json!({ "behave": "script", "steps": [{ "Emit": emit }, "Done"] }).to_string()
    };
    let usage = |input: Value, output: Value| {
        json!({
            "input_tokens": input, "output_tokens": output, "cache_read_tokens": u64::MAX,
            "cache_write_short_tokens": u64::MAX, "cache_write_long_tokens": u64::MAX,
            "reasoning_tokens": u64::MAX, "images": null, "other": [],
        })
    };
    let before = available(&gateway).await;
    for (reported, bytes, output, estimated) in [
        (None, 400, 100, true),
        (Some(usage(json!(0), json!(0))), 400, 100, true),
        (
            Some(usage(json!(u64::MAX), json!(u64::MAX))),
            400,
            1_064,
            false,
        ),
        (Some(usage(json!(null), json!(7))), 400, 7, true),
        // No model splits a token so far.
        (Some(usage(json!(7), json!(1))), 1_024 + 160, 10, false),
    ] {
        let command = with_usage(reported.clone(), bytes);
        let mut body = chat("hostile", &command);
        body["max_tokens"] = json!(1_000);
        let answer = gateway.client().post("/chat", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let charge = charges(&gateway).await.pop().expect("a charge");
        assert_eq!(charge.tokens_output, output, "{reported:?}");
        assert_eq!(charge.estimated, estimated, "{reported:?}");
        let bound = 2 * (command.len() as i64 / 2 + 16);
        assert!((1..=bound).contains(&charge.tokens_input), "{charge:?}");
        assert_eq!(
            charge.credits,
            price(charge.tokens_input as u64, output as u64)
        );
    }
    assert!(available(&gateway).await < before);
    is_settled(&gateway).await;
    // The counts of rejected reports name the component.
    let slots = gateway.admin("root").await.get("/admin/plugins").await;
    let slots = slots.json()["slots"].clone();
    let clamps = |name: &str| {
        let slot = slots
            .as_array()
            .expect("slots")
            .iter()
            .find(|slot| slot["slot"] == name);
        slot.expect("the slot")["plugins"][0]["clamps"].clone()
    };
    assert_eq!((clamps("hostile"), clamps("demo")), (json!(2), json!(0)));
}

/// A document costs as much as its pages, which its own count does not say; an uncountable one may fill the window.
#[tokio::test]
async fn a_file_is_held_for_by_its_pages_or_as_the_rest_of_the_window() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("read", 5_000, 5));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .credits(0)
        .start()
        .await;
    // As much as the request costs without the document, so that weir reads it.
    leave(&gateway, Credits::from_micro(price(200, 1_064))).await;
    let ask = async |data: &str| {
        let mut body = chat("scripted", "");
        body["messages"][0]["content"] = json!([{ "type": "file", "file": {
            "filename": "a.pdf", "file_data": format!("data:application/pdf;base64,{}", STANDARD.encode(data)) } }]);
        gateway.client().post("/chat", &body).await
    };
    let required = async |data: &str| {
        let refused = ask(data).await.error(429, "QUOTA_EXCEEDED");
        micro(&refused["required_credits"])
    };
    let pdf = |pages: u32| {
        let kids: String = (3..3 + pages).map(|page| format!("{page} 0 R ")).collect();
        let pages: String = (3..3 + pages)
            .map(|page| format!("{page} 0 obj << /Type /Page /Parent 2 0 R >> endobj\n"))
            .collect();
        format!(
            "%PDF-1.4\n1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj\n\
             2 0 obj << /Type /Pages /Count 1 /Kids [{kids}] >> endobj\n{pages}trailer << /Root 1 0 R >>\n"
        )
    };
    let (one, three) = (required(&pdf(1)).await, required(&pdf(3)).await);
    // Each page is an image of at most 100 tokens, and 1,000 of text; accepted up to twice that.
    assert_eq!(three - one, price(2 * 2 * 1_100, 0));
    let window = price(8_000_000, 1_000 + 64);
    assert_eq!(required("%PDF-1.7 no page that anybody sees").await, window);
    assert_eq!(required(&format!("{} /Type /ObjStm", pdf(1))).await, window);
    assert_eq!(upstream.count(), 0);

    // The hold covers the accepted usage.
    leave(&gateway, Credits::from_micro(three)).await;
    assert_eq!(ask(&pdf(3)).await.status, 200);
    is_settled(&gateway).await;
    assert_eq!(charges(&gateway).await[0].credits, price(5_000, 5));
}

#[tokio::test]
async fn an_answer_that_costs_more_than_was_held_ends_early() {
    let gateway = Gateway::builder()
        .guest("hostile", guests::misbehaving(), None)
        .start()
        .await;
    // The usage reported on the way exceeds the hold, but not the accepted maximum.
    let usage = json!({
        "input_tokens": u64::MAX, "output_tokens": u64::MAX, "cache_read_tokens": null,
        "cache_write_short_tokens": null, "cache_write_long_tokens": null, "reasoning_tokens": null,
        "images": null, "other": [],
    });
    let command = json!({ "behave": "script", "steps": [
        { "Emit": [start(0), text(0, "so far"), { "Usage": usage }] },
        { "Emit": [text(0, " and no further"), end(0), finish()] },
        "Done",
    ]});
    let answer = gateway.chat("hostile", &command.to_string()).await;
    let choice = answer.json()["choices"][0].clone();
    assert_eq!(choice["message"]["content"], "so far");
    assert_eq!(choice["finish_reason"], "length");
    is_settled(&gateway).await;
    assert_eq!(charges(&gateway).await.len(), 1);
}

async fn hang_up_after_the_first_chunk(client: &Client) {
    let mut stream = client.stream("/chat", &chat("scripted", &prompt())).await;
    stream.next_chunk().await;
    drop(stream);
}

#[tokio::test]
async fn a_client_that_hangs_up_pays_for_what_was_made() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    let reply = Reply::chat_stream_with_usage(["one ", "two ", "three"], 50, 9);
    upstream.will(reply.clone().gate_before_piece(1, &gate));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[limits]\nhang_up_drain_ms = 300\n")
        .start()
        .await;
    let client = gateway.client();
    hang_up_after_the_first_chunk(&client).await;
    gate.open();
    is_settled(&gateway).await;
    let drained = charges(&gateway).await.pop().expect("a charge");
    assert_eq!((drained.credits, drained.estimated), (price(50, 9), false));

    // This upstream never reports its usage.
    upstream.will(reply.silent_after(300));
    hang_up_after_the_first_chunk(&client).await;
    is_settled(&gateway).await;
    let cut = charges(&gateway).await.pop().expect("a charge");
    assert!(cut.estimated && cut.tokens_output >= 1, "{cut:?}");

    // The provider goes on with a plain response, which may come later than the end of a stream would.
    let gate = Gate::new();
    upstream.will(Reply::chat_with_usage("late", 2, 7).after_gate(&gate));
    let asking = {
        let client = client.clone();
        tokio::spawn(async move { client.post("/chat", &chat("scripted", "hello")).await })
    };
    patiently(gate.reached()).await;
    asking.abort();
    let _ = asking.await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    gate.open();
    is_settled(&gateway).await;
    let whole = charges(&gateway).await.pop().expect("a charge");
    assert_eq!((whole.credits, whole.estimated), (price(2, 7), false));
    assert_eq!(charges(&gateway).await.len(), 3);
}

/// Nobody will learn the usage of a plain request that its provider has accepted. A client that still waits gets an error.
#[tokio::test]
async fn a_stopping_gateway_charges_the_hold_of_a_request_without_a_client() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::never());
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[limits]\nshutdown_ms = 200\n")
        .start()
        .await;
    let client = gateway.client();
    let ask = || {
        let client = client.clone();
        let mut body = chat("scripted", "hello");
        body["max_tokens"] = 1_000.into();
        tokio::spawn(async move { client.try_post("/chat", &body).await })
    };
    let gone = ask();
    patiently(upstream.next_request()).await;
    gone.abort();
    let _ = gone.await;
    let stays = ask();
    patiently(upstream.next_request()).await;
    for _ in 0..20 {
        gateway.stranger().get("/health").await;
    }
    let folder = gateway.stop().await;
    let told = stays.await.expect("no panic").expect("a response");
    told.error(503, "SHUTTING_DOWN");
    let again = Gateway::builder()
        .upstream("scripted", &upstream)
        .folder(folder)
        .start()
        .await;
    is_settled(&again).await;
    let charged = charges(&again).await;
    // Twice half of 5 bytes and 16 for a message, and the output limit with its slack.
    let most = (36, 1_064);
    assert_eq!(charged.len(), 1, "{charged:?}");
    assert_eq!((charged[0].tokens_input, charged[0].tokens_output), most);
    assert_eq!(
        (charged[0].credits, charged[0].estimated),
        (price(36, 1_064), true)
    );
}

#[tokio::test]
async fn a_gateway_that_stops_leaves_nothing_held() {
    let upstream = Upstream::start().await;
    let text = "twenty bytes of text";
    upstream.will(Reply::chat_stream([text, text, text]).silent_after(400));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[limits]\nshutdown_ms = 200\n")
        .start()
        .await;
    let mut stream = gateway.stream("scripted", "hello").await;
    stream.next_chunk().await;
    let reading = tokio::spawn(async move { stream.is_whole().await });
    let folder = gateway.stop().await;
    assert!(!reading.await.expect("no panic"));
    let again = Gateway::builder()
        .upstream("scripted", &upstream)
        .folder(folder)
        .start()
        .await;
    is_settled(&again).await;
    let charge = charges(&again).await.pop().expect("a charge");
    assert!(charge.estimated && charge.tokens_output >= 5, "{charge:?}");
}

/// Little of its charge is lost if this process ends now.
#[tokio::test]
async fn what_a_stream_has_used_is_noted_while_it_goes_on() {
    let upstream = Upstream::start().await;
    let (first, rest) = (Gate::new(), Gate::new());
    let text = "text ".repeat(200);
    let reply = Reply::chat_stream_with_usage([&*text, &*text, "end"], 50, 500);
    upstream.will(
        reply
            .gate_before_piece(1, &first)
            .gate_before_piece(2, &rest),
    );
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[ledger]\ncheckpoint_ms = 300\n")
        .start()
        .await;
    let mut stream = gateway.stream("scripted", "hello").await;
    stream.next_chunk().await;
    let begun = Instant::now();
    let noted = async || -> i64 {
        sqlx::query_scalar("SELECT checkpoint FROM holds")
            .fetch_one(gateway.app().database.reader())
            .await
            .expect("there is a hold")
    };
    tokio::time::sleep_until(begun + Duration::from_millis(400)).await;
    first.open();
    patiently(async {
        while noted().await == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(noted().await < price(50, 500), "{}", noted().await);
    rest.open();
    assert!(stream.is_whole().await);
    is_settled(&gateway).await;
}
