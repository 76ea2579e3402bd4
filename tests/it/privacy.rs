//! Privacy: the export and the erasure of a person's data.

use std::path::Path;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use sqlx::Row;
use tests::gateway::{on_each_database, top_up};
use tests::stores::{Postgres, Redis};
use tests::{Answer, Client, Gate, Gateway, Reply, Upstream, chat};
use weir_app::privacy::erase::sweep;
use weir_ledger::Credits;
use weir_ledger::verify::verify;
use weir_storage::database::SqlDialect;
use weir_storage::secrets::Secret;
use weir_tools::settings::CredentialBinding;
use weir_tools::task_credentials::NewCredential;

use crate::billing::is_settled;
use crate::console::{Browser, location};
use crate::operate::{Running, fail, folder, succeed};
use crate::swarms::{agent, ended, swarm};
use crate::tasks::{TASKS, define, definition};

const START: &str = "2026-03-04T05:30:00Z";

/// The subject of the person whose data the tests export and erase. Their e-mail address contains it.
const SUBJECT: &str = "paula-subject-canary";

/// Texts of the person that no table keeps in clear text after the erasure.
const TEXTS: [&str; 5] = [
    SUBJECT,
    "key-name-canary",
    "notice-canary",
    "prompt-canary",
    "pipeline-canary",
];

/// A person with data in many tables.
struct Paula {
    id: String,
    web: Client,
    raw_key: String,
    by_key: Client,
    organisation: String,
    by_organisation_key: Client,
}

impl Paula {
    async fn new(gateway: &Gateway) -> Self {
        let (web, id) = (gateway.web(SUBJECT), gateway.web_user_id(SUBJECT).await);
        let named = json!({ "name": "key-name-canary" });
        let raw_key = made(&web.post("/api-keys", &named).await, "api_key");
        let organisation = join_acme(gateway).await;
        let acting = web.clone().with_header("x-weir-account", &organisation);
        let organisation_key = made(&acting.post("/api-keys", &named).await, "api_key");
        Self {
            by_key: gateway.stranger().with_key(&raw_key),
            by_organisation_key: gateway.stranger().with_key(&organisation_key),
            raw_key,
            id,
            web,
            organisation,
        }
    }

    /// Adds a request, tasks with a credential, a swarm, notices, a payment and a voucher. The personal plan is free at
    /// the end, and no bought credits are left.
    async fn works(&self, gateway: &Gateway) {
        let admin = gateway.admin("root").await;
        let set_plan = async |plan: &str| {
            let path = format!("/admin/users/{}/plan", self.id);
            let set = admin.post(&path, &json!({ "plan": plan })).await;
            assert_eq!(set.status, 200, "{}", set.text());
        };
        set_plan("pro").await;
        let keyed = self.by_key.clone().with_header("idempotency-key", "once");
        let answer = keyed
            .post("/chat", &chat("scripted", "prompt-canary"))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        for client in [&self.by_key, &self.by_organisation_key] {
            let refused = client
                .post("/chat", &chat("no-model", "prompt-canary"))
                .await;
            refused.error(400, "UNKNOWN_MODEL");
        }
        gateway.app().failed_requests.flush().await;
        gateway.app().traffic.flush().await;
        // Two full pages of tasks.
        let mut task = String::new();
        for number in 0..20 {
            let mut defined = definition(&format!("task {number}"));
            defined["agents"][0]["task_prompt"] = json!("prompt-canary");
            task = define(&self.web, &defined).await;
        }
        let credential = NewCredential {
            user_id: &self.id,
            task_id: &task,
            name: "crm",
            secret: &Secret::new("credential-secret-canary".to_owned()),
            binding: &CredentialBinding {
                origin: "https://crm.example.com".to_owned(),
                methods: Vec::new(),
                path: "/".to_owned(),
                header: "authorization".to_owned(),
                prefix: None,
            },
            at: gateway.app().clock.now(),
        };
        let kept = gateway.app().swarms.credentials.keep(&credential).await;
        assert!(kept.expect("an answer"));
        let mut wanted = swarm(&[agent("scout")]);
        wanted["swarm_id"] = json!("pipeline-canary");
        let accepted = self.web.post("/swarms", &wanted).await;
        let run = made(&accepted, "execution_id");
        assert_eq!(ended(&self.web, &run).await["status"], "completed");
        set_plan("free").await;
        let voucher = json!({ "name": "spring", "credits": 5, "uses": 1, "expires_in_days": 10 });
        let code = made(&admin.post("/admin/vouchers", &voucher).await, "code");
        let redeem = json!({ "code": code });
        let redeemed = self.web.post("/billing/redeem", &redeem).await;
        assert_eq!(redeemed.status, 200, "{}", redeemed.text());
        let take = json!({ "credits": -5, "reason": "correction" });
        let adjust = format!("/admin/users/{}/adjust", self.id);
        let taken = admin.post(&adjust, &take).await;
        assert_eq!(taken.status, 200, "{}", taken.text());
        self.insert_rows(gateway).await;
        is_settled(gateway).await;
        gateway.app().audit.flush().await;
    }

    /// Inserts two full pages of notices, and the rows of a payment.
    async fn insert_rows(&self, gateway: &Gateway) {
        let id = &self.id;
        let notices = (0..1_000).map(|number| {
            format!("('notice-{number:04}', '{id}', 'low_balance', '{{\"is\":\"notice-canary\"}}', {number})")
        });
        let notices = notices.collect::<Vec<_>>().join(",");
        for text in [
            format!("INSERT INTO notices (id, user_id, kind, data, created_at) VALUES {notices}"),
            format!("INSERT INTO payment_customers VALUES ('{id}', 'cus_1', 1)"),
            format!(
                "INSERT INTO payment_checkouts (id, user_id, purpose, item, session_id, url, created_at, expires_at, \
                 closed_at) VALUES ('checkout_1', '{id}', 'plan', 'pro', 'cs_1', 'https://pay.example.com/{SUBJECT}', 1, 2, 2)"
            ),
            format!(
                "INSERT INTO payments (id, user_id, kind, credits, amount, paid_at, currency) \
                 VALUES ('pi_1', '{id}', 'plan', 1000000, 2000, 1, 'usd')"
            ),
            format!(
                "INSERT INTO payment_subscriptions (id, user_id, plan, status, cancelled_at, as_of, event_id) \
                 VALUES ('sub_1', '{id}', 'pro', 'canceled', 2, 2, 'evt_1')"
            ),
            format!(
                "INSERT INTO auto_top_ups (user_id, tier, threshold, changed_at) VALUES ('{id}', 'small', 1000000, 1)"
            ),
            format!("INSERT INTO voucher_guesses VALUES ('{id}', 1, 1) ON CONFLICT DO NOTHING"),
        ] {
            run_sql(gateway, text).await;
        }
    }

    async fn erase(&self, query: &str) -> Answer {
        let path = format!("/users/me{query}");
        delete(&self.web, &path, &json!({ "confirm": self.id })).await
    }

    /// All rows that an erasure changes, except for times of use.
    async fn state(&self, gateway: &Gateway) -> Vec<String> {
        let mut state = Vec::new();
        for text in [
            "SELECT CAST(COUNT(email) + COUNT(subject) - COUNT(disabled_at) - COUNT(deleted_at) AS BIGINT) FROM users \
             WHERE id = $1",
            "SELECT CAST(COUNT(*) AS BIGINT) FROM api_keys WHERE (user_id = $1 OR holder_id = $1) AND name <> '' \
             AND disabled_at IS NULL",
            "SELECT CAST(COUNT(*) AS BIGINT) FROM members WHERE user_id = $1",
            "SELECT CAST(COUNT(*) AS BIGINT) FROM tasks WHERE user_id = $1",
            "SELECT CAST(COUNT(*) AS BIGINT) FROM task_credentials",
            "SELECT CAST(COUNT(*) AS BIGINT) FROM swarm_runs WHERE user_id = $1",
            "SELECT CAST(COUNT(*) AS BIGINT) FROM notices WHERE user_id = $1",
            "SELECT CAST(COUNT(*) AS BIGINT) FROM auto_top_ups WHERE user_id = $1",
            "SELECT CAST(COUNT(*) AS BIGINT) FROM voucher_guesses WHERE user_id = $1",
            "SELECT CAST(COUNT(*) AS BIGINT) FROM idempotency_keys WHERE account_id = $1",
            "SELECT CAST(COUNT(*) AS BIGINT) FROM failed_requests WHERE user_id = $1",
            "SELECT CAST(COUNT(*) AS BIGINT) FROM failed_request_counts WHERE account_id = $1",
            "SELECT CAST(COUNT(*) AS BIGINT) FROM traffic_hours WHERE organisation_id = $1",
            "SELECT CAST(COUNT(url) AS BIGINT) FROM payment_checkouts WHERE user_id = $1",
        ] {
            let mut query = sqlx::query_scalar::<_, i64>(text);
            if text.contains("$1") {
                query = query.bind(&*self.id);
            }
            let count = query.fetch_one(gateway.app().database.reader()).await;
            let count = count.unwrap_or_else(|error| panic!("{text}: {error}"));
            state.push(format!("{text}: {count}"));
        }
        state
    }
}

/// Makes the person a member of an organisation of olivia, who is not alone in it. Returns its id.
async fn join_acme(gateway: &Gateway) -> String {
    let olivia = gateway.web("olivia");
    let named = json!({ "name": "Acme" });
    let organisation = olivia.post("/organisations", &named).await;
    let organisation = made(&organisation, "organisation_id");
    top_up(gateway.app(), &organisation, Credits::whole(100)).await;
    let invitations = format!("/organisations/{organisation}/invitations");
    let invite = json!({ "email": format!("{SUBJECT}@example.com"), "role": "member" });
    let code = made(&olivia.post(&invitations, &invite).await, "code");
    let accept = json!({ "code": code });
    let paula = gateway.web(SUBJECT);
    let joined = paula.post("/invitations/accept", &accept).await;
    assert_eq!(joined.status, 200, "{}", joined.text());
    organisation
}

fn made(answer: &Answer, field: &str) -> String {
    assert!(answer.status.is_success(), "{}", answer.text());
    let made = answer.json();
    made[field].as_str().expect("a text").to_owned()
}

async fn delete(client: &Client, path: &str, body: &Value) -> Answer {
    let body = Bytes::from(body.to_string());
    client
        .send(Method::DELETE, path, Some("application/json"), body)
        .await
}

async fn run_sql(gateway: &Gateway, text: String) {
    let done =
        sqlx::query(sqlx::AssertSqlSafe(text.clone())).execute(gateway.app().database.writer());
    done.await.unwrap_or_else(|error| panic!("{text}: {error}"));
}

async fn columns(gateway: &Gateway, text: &'static str) -> Vec<Option<String>> {
    let rows = sqlx::query(text).fetch_all(gateway.app().database.reader());
    let rows = rows.await.unwrap_or_else(|error| panic!("{text}: {error}"));
    rows.iter().map(|row| row.get(0)).collect()
}

fn upstream_builder(
    upstream: &Upstream,
) -> impl Fn(tests::gateway::Builder) -> tests::gateway::Builder {
    |builder| builder.swarms().upstream("scripted", upstream)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_has_all_data_of_a_person_but_no_secret_and_nobody_elses() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 10, 20));
    on_each_database(START, upstream_builder(&upstream), async |gateway, _| {
        let paula = Paula::new(&gateway).await;
        paula.works(&gateway).await;
        let answer = paula.web.get("/users/me/export").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let disposition = format!("attachment; filename=\"{}.json\"", paula.id);
        assert_eq!(answer.headers["content-disposition"], *disposition);
        assert_eq!(answer.headers["content-type"], "application/json");
        let export = answer.json();
        assert_eq!(export["user"]["user_id"], *paula.id);
        assert_eq!(export["user"]["subject"], SUBJECT);
        assert_eq!(export["user"]["email"], format!("{SUBJECT}@example.com"));
        assert_eq!(export["account"]["plan"], "free");
        assert_eq!(
            export["account"]["totals"]["requests"], 2,
            "{}",
            export["account"]
        );
        assert_eq!(export["elsewhere"]["transactions"], "/billing/transactions");
        for (list, rows) in [
            ("memberships", 1),
            ("invitations", 1),
            ("api_keys", 2),
            ("swarms", 1),
            ("failed_requests", 2),
            ("notices", 1_000),
            ("payment_customers", 1),
            ("checkouts", 1),
            ("payments", 1),
            ("subscriptions", 1),
            ("auto_top_up", 1),
            ("auto_top_up_charges", 0),
            ("vouchers", 1),
            ("tasks", 20),
        ] {
            let found = export[list].as_array().map(Vec::len);
            assert_eq!(found, Some(rows), "{list}");
        }
        assert_eq!(export["memberships"][0]["organisation"], "Acme");
        assert_eq!(export["api_keys"][0]["name"], "key-name-canary");
        assert_eq!(export["payments"][0]["amount_cents"], 2_000);
        assert_eq!(export["notices"][999]["data"]["is"], "notice-canary");
        // Newest first, like the list of tasks.
        let task = &export["tasks"][0];
        assert_eq!(
            task["definition"]["swarm"]["agents"][0]["task_prompt"],
            "prompt-canary"
        );
        assert_eq!(task["credentials"][0]["name"], "crm");
        let kinds = export["audit_events"].as_array().expect("a list").iter();
        let kinds: Vec<_> = kinds.map(|event| event["kind"].as_str()).collect();
        assert!(kinds.contains(&Some("api_key.created")), "{kinds:?}");

        let text = answer.text();
        let root = gateway.web_user_id("root").await;
        let secret_part = &paula.raw_key[paula.raw_key.len() - 20..];
        for absent in [
            "olivia",
            "credential-secret-canary",
            secret_part,
            &root,
            "hash",
        ] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }

        // Neither a key nor another user gets it, but an administrator does.
        paula
            .by_key
            .get("/users/me/export")
            .await
            .error(401, "UNAUTHENTICATED");
        let path = format!("/admin/users/{}/export", paula.id);
        paula.web.get(&path).await.error(403, "FORBIDDEN");
        let admin = gateway.admin("root").await;
        let same = admin.get(&path).await.json();
        assert_eq!(same["tasks"], export["tasks"]);
        assert_eq!(same["user"], export["user"]);
        for nobody in ["usr_0", &paula.organisation] {
            let unknown = admin.get(&format!("/admin/users/{nobody}/export")).await;
            unknown.error(404, "UNKNOWN_USER");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erased_user_leaves_an_opaque_id_and_a_new_one_takes_their_place() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 10, 20));
    on_each_database(START, upstream_builder(&upstream), async |gateway, _| {
        let paula = Paula::new(&gateway).await;
        paula.works(&gateway).await;
        let admin = gateway.admin("root").await;
        let of_paula = |rest: &str| format!("/admin/users/{}{rest}", paula.id);
        let transactions = admin.get(&of_paula("/transactions")).await.json();
        let before = paula.state(&gateway).await;

        let other = json!({ "confirm": "usr_0" });
        let refused = delete(&paula.web, "/users/me", &other).await;
        assert_eq!(refused.error(400, "INVALID_REQUEST")["param"], "confirm");
        let by_key = delete(&paula.by_key, "/users/me", &json!({ "confirm": paula.id })).await;
        by_key.error(401, "UNAUTHENTICATED");
        assert_eq!(paula.state(&gateway).await, before);

        let erased = paula.erase("").await;
        assert_eq!(erased.status, 200, "{}", erased.text());
        let erased = erased.json();
        assert_eq!(erased["user_id"], *paula.id);
        for key in [&paula.by_key, &paula.by_organisation_key] {
            key.post("/chat", &chat("scripted", "x"))
                .await
                .error(401, "UNAUTHENTICATED");
        }
        for rest in paula.state(&gateway).await {
            let is_ended =
                rest.ends_with(": 0") || rest.contains("FROM users") && rest.ends_with(": -2");
            assert!(is_ended, "{rest}");
        }
        for empty in [
            "SELECT id FROM tasks",
            "SELECT run_id FROM swarm_events",
            "SELECT run_id FROM swarm_steps",
            "SELECT name FROM api_keys WHERE name = 'key-name-canary'",
        ] {
            assert_eq!(columns(&gateway, empty).await, [], "{empty}");
        }
        let invitations = columns(&gateway, "SELECT email FROM invitations").await;
        assert_eq!(invitations, [Some(String::new())]);

        // Money keeps the id.
        assert_eq!(
            admin.get(&of_paula("/transactions")).await.json(),
            transactions
        );
        let payers = columns(&gateway, "SELECT user_id FROM payments").await;
        assert_eq!(payers, [Some(paula.id.clone())]);
        let app = gateway.app();
        let violations = verify(&app.database, app.clock.now()).await;
        assert_eq!(violations.expect("an answer"), []);
        app.audit.flush().await;
        let events = admin
            .get(&format!("/admin/audit?user_id={}", paula.id))
            .await;
        let events = events.json();
        let event = &events["events"][0];
        assert_eq!(event["kind"], "user.erased", "{events}");
        assert_eq!(event["actor"], format!("user:{}", paula.id));

        // A repeat says so, and nothing enables the user.
        let again = delete(&admin, &of_paula(""), &json!({ "confirm": paula.id })).await;
        assert_eq!(again.status, 200, "{}", again.text());
        assert_eq!(again.json(), erased);
        let enabled = admin.post(&of_paula("/enable"), &json!({})).await;
        enabled.error(409, "NOT_POSSIBLE");
        let shown = admin.get(&of_paula("")).await.json();
        assert_eq!(shown["erased_at"], erased["erased_at"]);
        assert_eq!(shown["subject"], Value::Null);

        // The same subject is another user, without the old data.
        let export = paula.web.get("/users/me/export").await.json();
        assert_ne!(export["user"]["user_id"], *paula.id);
        assert_eq!(export["user"]["subject"], SUBJECT);
        assert_eq!(export["memberships"], json!([]));
        assert_eq!(paula.web.get(TASKS).await.json()["tasks"], json!([]));
        let members = format!("/organisations/{}/members", paula.organisation);
        let members = gateway.web("olivia").get(&members).await.json();
        assert_eq!(members["members"].as_array().map(Vec::len), Some(1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_erasure_changes_nothing() {
    let upstream = Upstream::start().await;
    on_each_database(START, upstream_builder(&upstream), async |gateway, _| {
        let paula = Paula::new(&gateway).await;
        let admin = gateway.admin("root").await;
        let plan = format!("/admin/users/{}/plan", paula.id);
        let refused = async |code: &str, words: &str| {
            let before = paula.state(&gateway).await;
            let refused = paula.erase("").await;
            let message = refused.error(409, code)["message"].to_string();
            assert!(message.contains(words), "{message}");
            assert_eq!(paula.state(&gateway).await, before);
            assert_eq!(paula.by_key.get("/models").await.status, 200);
            assert_eq!(paula.by_organisation_key.get("/models").await.status, 200);
        };

        assert_eq!(
            admin.post(&plan, &json!({ "plan": "pro" })).await.status,
            200
        );
        define(&paula.web, &definition("report")).await;
        refused("NOT_POSSIBLE", "paid plan").await;

        upstream.will(Reply::chat("fine"));
        let run = paula.web.post("/swarms", &swarm(&[agent("scout")])).await;
        let run = made(&run, "execution_id");
        ended(&paula.web, &run).await;
        upstream.next_request().await;
        let free = json!({ "plan": "free" });
        assert_eq!(admin.post(&plan, &free).await.status, 200);
        let to = async |state: &str| {
            run_sql(
                &gateway,
                format!("UPDATE swarm_runs SET {state} WHERE id = '{run}'"),
            )
            .await;
        };
        // No executor takes it.
        to("status = 'queued', ended_at = NULL, lease_until = 9000000000000000").await;
        refused("NOT_POSSIBLE", "Swarms are in progress").await;
        to("status = 'completed', ended_at = 1").await;

        let gate = Gate::new();
        upstream.will(Reply::chat("late").after_gate(&gate));
        let question = chat("scripted", "x");
        let request = paula.by_key.post("/chat", &question);
        let meanwhile = async {
            upstream.next_request().await;
            refused("NOT_POSSIBLE", "Requests are in progress").await;
            gate.open();
        };
        let (answer, ()) = tokio::join!(request, meanwhile);
        assert_eq!(answer.status, 200, "{}", answer.text());
        is_settled(&gateway).await;

        // A subscription that renews.
        run_sql(
            &gateway,
            format!(
                "INSERT INTO payment_subscriptions (id, user_id, plan, status, as_of, event_id) \
             VALUES ('sub_1', '{}', 'pro', 'past_due', 2, 'evt_1')",
                paula.id
            ),
        )
        .await;
        refused("NOT_POSSIBLE", "paid plan").await;
        run_sql(
            &gateway,
            "UPDATE payment_subscriptions SET cancelled_at = 2".to_owned(),
        )
        .await;

        let mine = made(
            &paula
                .web
                .post("/organisations", &json!({ "name": "Solo" }))
                .await,
            "organisation_id",
        );
        refused("LAST_OWNER", "Solo").await;
        refused("LAST_OWNER", &mine).await;
        let deleted = paula
            .web
            .clone()
            .delete(&format!("/organisations/{mine}"))
            .await;
        assert_eq!(deleted.status, 204, "{}", deleted.text());

        top_up(gateway.app(), &paula.id, Credits::whole(1)).await;
        refused("NOT_POSSIBLE", "bought credits").await;
        let erased = paula.erase("?forfeit_credits=true").await;
        assert_eq!(erased.status, 200, "{}", erased.text());
        // Organisations are no persons.
        let path = format!("/admin/users/{}", paula.organisation);
        let unknown = delete(&admin, &path, &json!({ "confirm": paula.organisation })).await;
        unknown.error(404, "UNKNOWN_USER");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keys_and_sessions_of_an_erased_user_end_on_all_nodes_at_once() {
    let (database, cache) = (Postgres::shared().create_database().await, Redis::start());
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("fine"));
    let builder = || {
        let builder = Gateway::builder().postgres(&database).redis(&cache.url());
        builder.upstream("scripted", &upstream)
    };
    let first = builder().start().await;
    let second = builder().sharing_secrets_of(&first).start().await;
    let paula = Paula::new(&first).await;
    let keys = [&paula.by_key, &paula.by_organisation_key];
    // Each node has each key in its cache.
    for key in keys {
        for node in [&first, &second] {
            let client = key.at(node.address());
            for _ in 0..2 {
                let answer = client.post("/chat", &chat("scripted", "x")).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
            }
        }
    }
    let mut browser = Browser::of(&second, SUBJECT).await;
    browser.page("/console").await;
    is_settled(&first).await;
    is_settled(&second).await;
    let erased = paula.erase("").await;
    assert_eq!(erased.status, 200, "{}", erased.text());
    for key in keys {
        for node in [&second, &first] {
            let client = key.at(node.address());
            let refused = client.post("/chat", &chat("scripted", "x")).await;
            refused.error(401, "UNAUTHENTICATED");
        }
    }
    assert_eq!(location(&browser.get("/console").await), "/console/sign-in");
    let users = "SELECT id FROM users WHERE email LIKE 'paula%'";
    assert_eq!(columns(&first, users).await, []);
    // A new sign-in works at once.
    Browser::of(&second, SUBJECT).await.page("/console").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_deletes_the_data_that_late_requests_write() {
    on_each_database(START, |builder| builder, async |gateway, _| {
        let paula = Paula::new(&gateway).await;
        assert_eq!(paula.erase("").await.status, 200);
        let ended = paula.state(&gateway).await;
        paula.insert_rows(&gateway).await;
        run_sql(&gateway, format!(
            "INSERT INTO members (organisation_id, user_id, role, created_at) VALUES ('{}', '{}', 'viewer', 1)",
            paula.organisation, paula.id)).await;
        assert_ne!(paula.state(&gateway).await, ended);
        sweep(gateway.app()).await.expect("an answer");
        assert_eq!(paula.state(&gateway).await, ended);
        // A request that began before the erasure brings no address back.
        let (database, now) = (&gateway.app().database, gateway.app().clock.now());
        let stale = weir_identity::store::find_user(database, &paula.id).await;
        let stale = stale.expect("an answer").expect("a row");
        let kept = weir_identity::store::keep_email(database, &stale, Some("late@example.com")).await;
        kept.expect("an answer");
        assert_eq!(paula.state(&gateway).await, ended);
        assert_eq!(verify(database, now).await.expect("an answer"), []);
    })
    .await;
}

/// All rows of all tables as text, from PostgreSQL.
async fn dump(gateway: &Gateway) -> String {
    assert_eq!(gateway.app().database.dialect(), SqlDialect::Postgres);
    let mut dump = String::new();
    let tables = "SELECT CAST(tablename AS TEXT) FROM pg_tables WHERE schemaname = 'public'";
    for table in columns(gateway, tables).await.into_iter().flatten() {
        let text = format!("SELECT CAST(t AS TEXT) FROM \"{table}\" AS t");
        let rows = sqlx::query_scalar::<_, String>(sqlx::AssertSqlSafe(text));
        let rows = rows.fetch_all(gateway.app().database.reader()).await;
        dump += &rows.expect("an answer").join("\n");
    }
    dump
}

/// The bytes of a SQLite file of a stopped gateway, and of its log.
fn bytes_of(data: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for file in std::fs::read_dir(data).expect("a folder") {
        let path = file.expect("a file").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if name.starts_with("weir.db") {
            bytes.extend(std::fs::read(path).expect("it can be read"));
        }
    }
    bytes
}

fn has(bytes: &[u8], text: &str) -> bool {
    tests::contains(bytes, text)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_table_and_no_byte_of_the_file_has_texts_of_an_erased_user() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 10, 20));
    let builder = || upstream_builder(&upstream)(Gateway::builder());
    let gateway = builder().start().await;
    let paula = Paula::new(&gateway).await;
    paula.works(&gateway).await;
    let data = gateway.data_dir();
    let before = bytes_of(&data);
    assert!(has(&before, SUBJECT) && has(&before, "key-name-canary"));
    assert_eq!(paula.erase("").await.status, 200);
    // A stop moves the log into the file, and removes the log.
    let _folder = gateway.stop().await;
    let after = bytes_of(&data);
    assert!(has(&after, &paula.id));
    for text in TEXTS {
        assert!(!has(&after, text), "{text}");
    }

    let url = Postgres::shared().create_database().await;
    let gateway = builder().postgres(&url).start().await;
    let paula = Paula::new(&gateway).await;
    paula.works(&gateway).await;
    let before = dump(&gateway).await;
    assert!(before.contains(SUBJECT) && before.contains("notice-canary"));
    assert_eq!(paula.erase("").await.status, 200);
    let after = dump(&gateway).await;
    assert!(after.contains(&paula.id));
    for text in TEXTS {
        assert!(!after.contains(text), "{text}: {after}");
    }
}

#[test]
fn operators_export_and_erase_by_command() {
    let folder = folder("dev = false\n");
    let folder = folder.path();
    succeed(folder, &["key", "create", "--user", "alice", "--offline"]);
    let erase = |confirm: &str| {
        ["user", "erase", "--user", "alice", "--confirm", confirm].map(str::to_owned)
    };
    let other = erase("bob");
    let other: Vec<_> = other.iter().map(String::as_str).collect();
    assert!(fail(folder, &other).contains("`confirm` must be the id"));
    {
        let _running = Running::start(folder);
        let export = succeed(folder, &["user", "export", "--user", "alice"]);
        let export: Value = serde_json::from_str(&export).expect("JSON");
        assert_eq!(export["user"]["user_id"], "alice");
        assert_eq!(export["api_keys"].as_array().map(Vec::len), Some(1));
    }
    let same = erase("alice");
    let same: Vec<_> = same.iter().map(String::as_str).collect();
    let erased = succeed(folder, &same);
    assert!(erased.starts_with("alice is erased, since "), "{erased}");
    assert_eq!(succeed(folder, &same), erased);
    let enabled = fail(folder, &["user", "enable", "--user", "alice"]);
    assert!(enabled.contains("cannot be enabled again"), "{enabled}");
    let nobody = ["user", "erase", "--user", "bob", "--confirm", "bob"];
    assert!(fail(folder, &nobody).contains("UNKNOWN_USER"));
}
