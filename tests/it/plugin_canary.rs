//! Canaries: a second component of a slot, for a share of the accounts, whose figures decide whether it ends or
//! serves all.

use axum::extract::FromRef as _;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use serde_json::{Value, json};
use tests::gateway::{Builder, at, top_up};
use tests::guests::{self, Habits};
use tests::stores::Postgres;
use tests::{Answer, Client, Gateway, chat, patiently};
use weir_inference::plugins::PluginParts;
use weir_ledger::{AccountId, Credits};
use weir_sandbox::Digest;
use weir_storage::clock::ManualClock;

const SLOT: &str = "/admin/plugins/greeter";

/// The behaviour of the component before a canary: fast, correct and frugal.
const USUAL: Habits = Habits {
    traps: 0,
    waits_ms: 0,
    tokens: 100,
};

/// Installs a component in the slot; returns its digest.
async fn install(admin: &Client, component: &[u8]) -> String {
    let answer = admin.put_component(SLOT, component).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    Digest::of(component).to_string()
}

async fn activate(admin: &Client, body: &Value) -> Answer {
    admin.post(&format!("{SLOT}/activate"), body).await
}

/// Starts an installed component as a canary for half of the accounts; returns its digest.
async fn start_canary(admin: &Client, component: &[u8]) -> String {
    let digest = install(admin, component).await;
    let body = json!({ "digest": digest, "share": 0.5 });
    let answer = activate(admin, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["canary"]["digest"], *digest);
    assert_eq!(answer.json()["canary"]["served"], true);
    digest
}

async fn shown(admin: &Client) -> Value {
    let answer = admin.get(SLOT).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Returns the kinds of the slot's events, the newest first.
async fn kinds(admin: &Client) -> Vec<String> {
    let events = events(admin).await;
    let kinds = events.iter().map(|event| event["kind"].as_str());
    kinds.map(|kind| kind.expect("a text").to_owned()).collect()
}

async fn events(admin: &Client) -> Vec<Value> {
    let listed = admin.get(&format!("{SLOT}/events")).await.json();
    listed["events"].as_array().expect("a list").clone()
}

fn greeter(component: &[u8]) -> Builder {
    Gateway::builder().guest("greeter", component, None)
}

/// Gateways of one deployment, with a crowd of users on each.
struct Deployment {
    nodes: Vec<Gateway>,
    crowd: Vec<(usize, Client)>,
    clock: ManualClock,
}

/// The size of a crowd: enough for many users on each side.
const CROWD: usize = 48;

impl Deployment {
    /// One node on SQLite, or two on PostgreSQL, whose slot serves with this component.
    async fn start(component: &[u8], on_postgres: bool) -> Self {
        let clock = ManualClock::at(at("2027-03-01T12:00:00Z"));
        let mut nodes = Vec::new();
        if on_postgres {
            let url = Postgres::shared().create_database().await;
            let node = || greeter(component).clock(&clock).postgres(&url);
            let first = node().start().await;
            nodes.push(node().sharing_secrets_of(&first).start().await);
            nodes.insert(0, first);
        } else {
            nodes.push(greeter(component).clock(&clock).start().await);
        }
        let mut crowd = Vec::new();
        for number in 0..CROWD {
            let (at, name) = (number % nodes.len(), format!("user-{number}"));
            let id = nodes[at].web_user_id(&name).await;
            top_up(nodes[at].app(), &id, Credits::whole(1_000)).await;
            crowd.push((at, nodes[at].web(&name)));
        }
        Self {
            nodes,
            crowd,
            clock,
        }
    }

    async fn admin(&self) -> Client {
        self.nodes[0].admin("olivia").await
    }

    /// Makes each of the crowd request this many streams.
    async fn ask(&self, times: usize) {
        let asked = self.crowd.iter().cycle().take(times * CROWD);
        let answers = asked.map(async |(_, client)| {
            let stream = client.stream("/chat", &chat("greeter", "hello")).await;
            stream.try_rest().await;
        });
        let mut answers = stream::iter(answers).buffer_unordered(32);
        while answers.next().await.is_some() {}
    }

    /// Makes every node write its samples, and then judge.
    async fn judge(&self) {
        for node in &self.nodes {
            let app = node.app();
            let written = app.plugins.write_counts(&app.database).await;
            written.expect("the database");
        }
        let judged = self.nodes.iter().map(async |node| {
            let app = node.app();
            let (parts, now) = (PluginParts::from_ref(app), app.clock.now());
            let judged = app
                .plugins
                .judge_canaries(parts.stores(), now, &app.metrics.plugins);
            judged.await.expect("the database");
        });
        join_all(judged).await;
    }

    /// Lets the crowd send requests until the canary is over, which must take at most some thousand requests.
    async fn ask_until_it_is_over(&self, admin: &Client) {
        for _ in 0..20 {
            self.ask(5).await;
            self.judge().await;
            if shown(admin).await["canary"].is_null() {
                return;
            }
        }
        panic!("the canary is not over: {:#}", shown(admin).await["canary"]);
    }

    /// Returns the sum of a metric over all nodes.
    async fn figure(&self, line: &str) -> u64 {
        let mut sum = 0;
        for node in &self.nodes {
            let metrics = node.stranger().get("/metrics").await.text();
            let values = metrics.lines().filter_map(|at| at.strip_prefix(line));
            sum += values
                .map(|value| value.trim().parse::<u64>().expect("a number"))
                .sum::<u64>();
        }
        sum
    }
}

/// Checks that a worse canary is rolled back automatically, once, on any number of nodes, with this reason.
async fn is_rolled_back(usual: Habits, canary: Habits, measure: &str, reason: &str) {
    for on_postgres in [false, true] {
        let deployment = Deployment::start(&guests::with_habits(usual), on_postgres).await;
        let admin = deployment.admin().await;
        let digest = start_canary(&admin, &guests::with_habits(canary)).await;
        deployment.ask_until_it_is_over(&admin).await;

        let slot = shown(&admin).await;
        let active = Digest::of(&guests::with_habits(usual)).to_string();
        assert_eq!(slot["active"], *active);
        assert_eq!(slot["serving"], *active);
        assert_eq!(
            kinds(&admin).await,
            ["canary_ended", "canary_started", "installed"]
        );
        let ended = events(&admin).await[0].clone();
        assert_eq!(ended["actor"], "weir");
        assert_eq!(ended["digest"], *digest);
        let detail = ended["detail"].as_str().expect("a reason");
        assert!(detail.starts_with(reason), "{measure}: {detail}");
        let figure = format!(
            "weir_plugin_canaries_rolled_back_total{{slot=\"greeter\",digest=\"{digest}\"}}"
        );
        assert_eq!(deployment.figure(&figure).await, 1);
        // It serves no account any more, on any node.
        patiently(async {
            for node in &deployment.nodes {
                while node.app().plugins.canary_shares().next().is_some() {
                    tokio::task::yield_now().await;
                }
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_that_traps_on_a_tenth_of_its_requests_is_rolled_back() {
    let canary = Habits { traps: 10, ..USUAL };
    is_rolled_back(USUAL, canary, "traps", "it traps more often: ").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_whose_first_token_comes_a_third_later_is_rolled_back() {
    let waiting = |waits_ms| Habits { waits_ms, ..USUAL };
    let reason = "the first token comes ";
    is_rolled_back(waiting(150), waiting(195), "first_token", reason).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_that_reports_double_the_tokens_is_rolled_back() {
    let canary = Habits {
        tokens: 200,
        ..USUAL
    };
    let reason = "requests are reported to have ";
    is_rolled_back(USUAL, canary, "tokens", reason).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_looks_at_its_canaries_by_itself() {
    let deployment = Deployment::start(&guests::with_habits(USUAL), false).await;
    let admin = deployment.admin().await;
    let wasteful = Habits {
        tokens: 200,
        ..USUAL
    };
    start_canary(&admin, &guests::with_habits(wasteful)).await;
    deployment.ask(10).await;
    patiently(async {
        while !shown(&admin).await["canary"].is_null() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(kinds(&admin).await[0], "canary_ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_that_is_as_good_serves_all_when_its_time_has_come_and_enough_is_known() {
    for on_postgres in [false, true] {
        // Longer than a busy machine adds.
        let usual = guests::with_habits(Habits {
            waits_ms: 150,
            ..USUAL
        });
        let deployment = Deployment::start(&usual, on_postgres).await;
        let admin = deployment.admin().await;
        let canary = guests::with_custom_section(&usual, 1);
        let digest = install(&admin, &canary).await;
        let body = json!({ "digest": digest, "share": 0.5, "promote_after_seconds": 1_800 });
        assert_eq!(activate(&admin, &body).await.status, 200);
        let shown_canary = shown(&admin).await["canary"].clone();
        assert_eq!(shown_canary["since"], "2027-03-01T12:00:00Z");
        assert_eq!(shown_canary["promote_at"], "2027-03-01T12:30:00Z");
        assert_eq!(shown_canary["enough"], false);

        // Its time has not come.
        deployment.ask(20).await;
        deployment.clock.advance(Duration::from_secs(1_799));
        deployment.judge().await;
        let admin = deployment.admin().await;
        let slot = shown(&admin).await;
        assert_eq!(slot["canary"]["enough"], true, "{slot:#}");
        for compared in slot["canary"]["comparison"].as_array().expect("a list") {
            assert_eq!(compared["judgement"], "alike", "{compared}");
            for side in ["active", "canary"] {
                let requests = compared[side]["requests"].as_u64().expect("a number");
                assert!(requests >= 100, "{compared}");
            }
        }
        deployment.clock.advance(Duration::from_secs(1));
        deployment.judge().await;
        let slot = shown(&admin).await;
        assert_eq!(slot["active"], *digest);
        assert_eq!(slot["canary"], Value::Null);
        assert_eq!(slot["previous"], *Digest::of(&usual).to_string());
        let listed = events(&admin).await;
        assert_eq!(listed[0]["kind"], "canary_promoted");
        assert_eq!(listed[0]["actor"], "weir");
        assert_eq!(listed[0]["detail"], "it was not worse for 30m");
        let terms = "50 % of accounts, all of them after 30m";
        assert_eq!(listed[1]["detail"], terms);
        assert_eq!(kinds(&admin).await.len(), 3);
        let figure =
            format!("weir_plugin_canaries_promoted_total{{slot=\"greeter\",digest=\"{digest}\"}}");
        assert_eq!(deployment.figure(&figure).await, 1);
        // On all nodes.
        patiently(async {
            for node in &deployment.nodes {
                let plugins = &node.app().plugins;
                while plugins
                    .serving_in("greeter")
                    .map(|is| is.digest().to_string())
                    != Some(digest.clone())
                {
                    tokio::task::yield_now().await;
                }
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_of_which_too_little_is_known_waits_after_its_time() {
    let usual = guests::with_habits(USUAL);
    let deployment = Deployment::start(&usual, false).await;
    let admin = deployment.admin().await;
    let digest = install(&admin, &guests::with_custom_section(&usual, 1)).await;
    let body = json!({ "digest": digest, "share": 0.5, "promote_after_seconds": 60 });
    assert_eq!(activate(&admin, &body).await.status, 200);
    deployment.ask(1).await;
    deployment.clock.advance(Duration::from_secs(60));
    deployment.judge().await;
    let canary = shown(&deployment.admin().await).await["canary"].clone();
    assert_eq!(canary["digest"], *digest);
    assert_eq!(canary["enough"], false);
}

/// Returns the greeting of each account.
async fn greetings(clients: &[Client]) -> Vec<String> {
    let greetings = clients.iter().map(async |client| {
        let answer = client.post("/chat", &chat("greeter", "hello")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.content()
    });
    join_all(greetings).await
}

fn clients(gateway: &Gateway, number: usize) -> Vec<Client> {
    let users = (0..number).map(|number| gateway.web(&format!("user-{number}")));
    users.collect()
}

#[tokio::test]
async fn the_same_accounts_stay_in_a_canary_and_a_larger_share_adds_to_them() {
    let gateway = greeter(&guests::answering("aa")).start().await;
    let admin = gateway.admin("olivia").await;
    let users = clients(&gateway, 40);
    let digest = install(&admin, &guests::answering("bb")).await;
    let mut before = vec!["aa".to_owned(); users.len()];
    for share in [0.3, 0.8] {
        let answer = activate(&admin, &json!({ "digest": digest, "share": share })).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let greeted = greetings(&users).await;
        assert_eq!(greetings(&users).await, greeted);
        let in_it = greeted.iter().filter(|letters| *letters == "bb").count();
        let expected = (share * users.len() as f64) as usize;
        assert!(in_it.abs_diff(expected) <= 12, "{in_it} of {expected}");
        for (was, is) in before.iter().zip(&greeted) {
            assert!(was == "aa" || is == "bb", "{was} became {is}");
        }
        before = greeted;
        let slot = shown(&admin).await;
        assert_eq!(slot["canary"]["share"], share);
        assert_eq!(slot["canary"]["comparison"][2]["measure"], "errors");
        let requests = |side: &str| slot["canary"]["comparison"][2][side]["requests"].clone();
        // Samples of the smaller share no longer count.
        assert_eq!(requests("canary"), 2 * in_it);
        assert_eq!(requests("active"), 2 * (users.len() - in_it));
        let figure =
            format!("weir_plugin_canary_share{{slot=\"greeter\",digest=\"{digest}\"}} {share}");
        let metrics = gateway.stranger().get("/metrics").await.text();
        assert!(metrics.contains(&figure), "{metrics}");
    }
    assert_eq!(
        kinds(&admin).await,
        ["canary_started", "canary_started", "installed"]
    );
}

/// Each change ends a canary in its own way.
#[tokio::test]
async fn an_operator_ends_a_canary_or_has_it_serve_all() {
    let gateway = greeter(&guests::answering("aa")).start().await;
    let admin = gateway.admin("olivia").await;
    let users = clients(&gateway, 10);
    let usual = Digest::of(&guests::answering("aa")).to_string();
    let digest = start_canary(&admin, &guests::answering("bb")).await;
    let slot = shown(&admin).await;
    let listed = slot["plugins"].as_array().expect("a list").iter();
    let states: Vec<_> = listed.map(|plugin| plugin["state"].clone()).collect();
    assert_eq!(states, ["active", "canary"]);
    let removed = admin.delete(&format!("{SLOT}/{digest}")).await;
    removed.error(409, "PLUGIN_IN_USE");

    // A rollback takes the canary back, not the active component.
    let answer = admin.post(&format!("{SLOT}/rollback"), &json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["active"], *usual);
    assert_eq!(answer.json()["canary"], Value::Null);
    assert_eq!(greetings(&users).await, ["aa"; 10]);
    let metrics = gateway.stranger().get("/metrics").await.text();
    assert!(!metrics.contains("weir_plugin_canary_share{"), "{metrics}");
    let answer = admin.post(&format!("{SLOT}/rollback"), &json!({})).await;
    answer.error(409, "NOTHING_TO_ROLL_BACK_TO");

    // Another canary in its place.
    activate(&admin, &json!({ "digest": digest, "share": 0.5 })).await;
    let other = start_canary(&admin, &guests::answering("cc")).await;
    let expected = ["canary_started", "canary_ended", "installed"];
    assert_eq!(kinds(&admin).await[..3], expected);

    // The canary serves all accounts.
    let answer = activate(&admin, &json!({ "digest": other })).await;
    assert_eq!(answer.json()["active"], *other);
    assert_eq!(answer.json()["canary"], Value::Null);
    assert_eq!(answer.json()["previous"], *usual);
    assert_eq!(greetings(&users).await, ["cc"; 10]);
    let listed = events(&admin).await;
    assert_eq!(listed[0]["kind"], "canary_promoted");
    assert!(
        listed[0]["actor"]
            .as_str()
            .is_some_and(|actor| actor.starts_with("user:")),
        "{}",
        listed[0]
    );

    // A third component is activated: the canary's counterpart is gone.
    activate(&admin, &json!({ "digest": digest, "share": 0.5 })).await;
    let answer = activate(&admin, &json!({ "digest": usual })).await;
    assert_eq!(answer.json()["active"], *usual);
    assert_eq!(answer.json()["canary"], Value::Null);
    assert_eq!(greetings(&users).await, ["aa"; 10]);
    assert_eq!(kinds(&admin).await[..2], ["activated", "canary_ended"]);
}

#[tokio::test]
async fn what_makes_no_canary_is_refused() {
    let gateway = greeter(&guests::answering("aa")).start().await;
    let admin = gateway.admin("olivia").await;
    let usual = Digest::of(&guests::answering("aa")).to_string();
    let digest = install(&admin, &guests::answering("bb")).await;
    for (share, after, param) in [
        (json!(0), Value::Null, "share"),
        (json!(1.5), Value::Null, "share"),
        (json!(0.5), json!(0), "promote_after_seconds"),
        (json!(1), json!(60), "promote_after_seconds"),
        (Value::Null, json!(60), "promote_after_seconds"),
    ] {
        let body = json!({ "digest": digest, "share": share, "promote_after_seconds": after });
        let error = activate(&admin, &body).await.error(400, "INVALID_REQUEST");
        assert_eq!(error["param"], param, "{body}");
    }
    let active = json!({ "digest": usual, "share": 0.5 });
    activate(&admin, &active).await.error(409, "PLUGIN_ACTIVE");
    let unknown = json!({ "digest": "0".repeat(64), "share": 0.5 });
    activate(&admin, &unknown)
        .await
        .error(404, "UNKNOWN_PLUGIN");
    // A slot without an active component has no counterpart for a canary.
    let new = "/admin/plugins/acme";
    admin.put_component(new, &guests::answering("cc")).await;
    let body = json!({ "digest": Digest::of(&guests::answering("cc")).to_string(), "share": 0.5 });
    let answer = admin.post(&format!("{new}/activate"), &body).await;
    answer.error(409, "NOTHING_TO_COMPARE_WITH");
    assert_eq!(kinds(&admin).await, ["installed"]);
}

/// Makes a component fail by this command.
async fn trap(client: &Client) {
    let command = json!({ "behave": "unreachable" }).to_string();
    let answer = client.post("/chat", &chat("greeter", &command)).await;
    answer.error(502, "ADAPTER_FAILED");
}

/// Waits until this node serves without a component. The metric is a quarantine's last step: the database has it before the node
/// changes its slot.
async fn until_quarantined(gateway: &Gateway, digest: &str) {
    let figure = format!("weir_plugin_quarantines_total{{slot=\"greeter\",digest=\"{digest}\"}} 1");
    patiently(async {
        let stranger = gateway.stranger();
        while !stranger.get("/metrics").await.text().contains(&figure) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_canary_in_quarantine_is_over_and_its_slot_goes_on_with_what_serves_the_others() {
    // The slot has no other: the active component is its last sound one, since the canary does not count.
    let gateway = greeter(&guests::answering("aa"))
        .tables("[plugins]\nquarantine_traps = 5")
        .start()
        .await;
    let admin = gateway.admin("olivia").await;
    let users = clients(&gateway, 20);
    let digest = start_canary(&admin, guests::misbehaving()).await;
    let greeted = greetings(&users).await;
    let in_it = users
        .iter()
        .zip(&greeted)
        .filter(|(_, letters)| *letters == "ok");
    let in_it: Vec<_> = in_it.map(|(client, _)| client).collect();
    assert!(in_it.len() >= 2, "{greeted:?}");
    for client in in_it.iter().cycle().take(5) {
        trap(client).await;
    }
    until_quarantined(&gateway, &digest).await;
    assert_eq!(greetings(&users).await, ["aa"; 20]);
    let listed = events(&admin).await;
    assert_eq!(listed[0]["kind"], "quarantined");
    assert_eq!(listed[0]["digest"], *digest);
    assert_eq!(listed[1]["kind"], "canary_ended");
    assert_eq!(
        listed[1]["detail"],
        "the canary is put into quarantine: 5 traps within a minute"
    );
    let slot = shown(&admin).await;
    let mut listed = slot["plugins"].as_array().expect("a list").iter();
    assert!(
        listed.any(|plugin| plugin["state"] == "quarantined"),
        "{slot}"
    );
}

#[tokio::test]
async fn a_slot_never_goes_back_to_its_canary() {
    let gateway = greeter(&guests::answering("aa"))
        .tables("[plugins]\nquarantine_traps = 5")
        .start()
        .await;
    let admin = gateway.admin("olivia").await;
    // The active component came after it, so it is also the earlier component.
    let canary = install(&admin, &guests::answering("bb")).await;
    let culprit = install(&admin, guests::misbehaving()).await;
    for body in [
        json!({ "digest": canary }),
        json!({ "digest": culprit }),
        json!({ "digest": canary, "share": 0.5 }),
    ] {
        let answer = activate(&admin, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let users = clients(&gateway, 20);
    let greeted = greetings(&users).await;
    let others = users
        .iter()
        .zip(&greeted)
        .filter(|(_, letters)| *letters == "ok");
    let others: Vec<_> = others.map(|(client, _)| client).collect();
    assert!(others.len() >= 2, "{greeted:?}");
    for client in others.iter().cycle().take(5) {
        trap(client).await;
    }
    until_quarantined(&gateway, &culprit).await;
    assert_eq!(greetings(&users).await, ["aa"; 20]);
    assert_eq!(kinds(&admin).await[..2], ["quarantined", "canary_ended"]);
}

#[tokio::test]
async fn a_node_on_which_a_canary_does_not_load_is_ready_and_serves_all_with_what_is_active() {
    let gateway = greeter(&guests::answering("aa")).start().await;
    let admin = gateway.admin("olivia").await;
    let digest = start_canary(&admin, &guests::answering("bb")).await;
    // The stored description differs from the component's.
    let spoiled = sqlx::query("UPDATE plugins SET description = '{}' WHERE digest = $1")
        .bind(digest.clone())
        .execute(gateway.app().database.writer())
        .await;
    assert_eq!(spoiled.expect("the database").rows_affected(), 1);
    let folder = gateway.stop().await;
    let gateway = greeter(&guests::answering("aa"))
        .folder(folder)
        .start()
        .await;
    assert_eq!(gateway.stranger().get("/health/ready").await.status, 200);
    assert_eq!(greetings(&clients(&gateway, 20)).await, ["aa"; 20]);
    let canary = shown(&gateway.admin("olivia").await).await["canary"].clone();
    assert_eq!(canary["digest"], *digest);
    assert_eq!(canary["served"], false);
    let why = canary["not_loaded"].as_str().expect("a reason");
    assert!(why.contains("its description differs"), "{why}");
}

#[tokio::test]
async fn a_canary_goes_on_after_a_restart_with_the_same_accounts() {
    let gateway = greeter(&guests::answering("aa")).start().await;
    start_canary(&gateway.admin("olivia").await, &guests::answering("bb")).await;
    let greeted = greetings(&clients(&gateway, 20)).await;
    let folder = gateway.stop().await;
    let gateway = greeter(&guests::answering("aa"))
        .folder(folder)
        .start()
        .await;
    assert_eq!(greetings(&clients(&gateway, 20)).await, greeted);
    let slot = shown(&gateway.admin("olivia").await).await;
    // Samples from before it stopped still count.
    let requests = &slot["canary"]["comparison"][2]["canary"]["requests"];
    let in_it = greeted.iter().filter(|letters| *letters == "bb").count();
    assert_eq!(*requests, 2 * in_it, "{slot:#}");
}

#[tokio::test]
async fn a_tools_canary_serves_its_accounts_alone() {
    let gateway = Gateway::builder()
        .plugin("teller", &guests::tool("aa"))
        .tables("[tools.teller]\nhosts = [\"api.example.com\"]")
        .start()
        .await;
    let admin = gateway.admin("olivia").await;
    let canary = guests::tool("bb");
    let digest = Digest::of(&canary);
    admin.put_component("/admin/plugins/teller", &canary).await;
    let body = json!({ "digest": digest.to_string(), "share": 0.5 });
    let answer = admin.post("/admin/plugins/teller/activate", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let tools = &gateway.app().tools;
    let mut in_it = 0;
    for number in 0..20 {
        let account = AccountId(format!("usr_{number}"));
        let serving = tools.digest("teller", &account).expect("it serves");
        let outcome = tools.call(call(&account)).await;
        assert_eq!(outcome.record.digest, Some(serving.to_string()));
        assert_eq!(
            outcome.content,
            ["aa", "bb"][usize::from(serving == digest)]
        );
        in_it += usize::from(serving == digest);
    }
    assert!((2..=18).contains(&in_it), "{in_it}");
    let slot = admin.get("/admin/plugins/teller").await.json();
    let requests = &slot["canary"]["comparison"][2]["canary"]["requests"];
    assert_eq!(*requests, in_it, "{slot:#}");
}

#[tokio::test]
async fn a_filters_canary_screens_its_accounts_alone() {
    let gateway = greeter(&guests::answering("aa"))
        .plugin("meddling", guests::meddling())
        .tables("[[filters]]\nslot = \"meddling\"")
        .start()
        .await;
    let admin = gateway.admin("olivia").await;
    let canary = guests::with_custom_section(guests::meddling(), 1);
    let slot = "/admin/plugins/meddling";
    let answer = admin.put_component(slot, &canary).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let body = json!({ "digest": Digest::of(&canary).to_string(), "share": 0.5 });
    let answer = admin.post(&format!("{slot}/activate"), &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    greetings(&clients(&gateway, 20)).await;
    let compared = admin.get(slot).await.json()["canary"]["comparison"].clone();
    // A filter's refusals, changes and stops are compared, too.
    assert_eq!(compared[3]["measure"], "refusals", "{compared}");
    let requests = |side: &str| compared[2][side]["requests"].as_u64().expect("a number");
    assert_eq!(requests("active") + requests("canary"), 20, "{compared}");
    assert!((2..=18).contains(&requests("canary")), "{compared}");
}

fn call(account: &AccountId) -> weir_tools::ToolInvocation {
    weir_tools::ToolInvocation {
        tool: "teller".into(),
        arguments: "{}".into(),
        account: account.clone(),
        plan: weir_ledger::Plan::Pro,
        webhook_urls: Vec::new(),
        integrations: Vec::new(),
        credentials: Vec::new(),
        idempotency_key: "k".into(),
        deadline: tokio::time::Instant::now() + Duration::from_secs(30),
    }
}
