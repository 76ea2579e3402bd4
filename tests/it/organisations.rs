//! Organisations: members, roles, invitations, projects, service accounts, keys and budgets.

use std::fs;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tests::api::{endpoints, fill};
use tests::client::patiently;
use tests::gateway::{on_each_database, top_up};
use tests::source::{files, root};
use tests::stores::{Postgres, Redis};
use tests::{Answer, Client, Gateway, Reply, Upstream, chat};
use weir_identity::dev_issuer::DevAudience;
use weir_identity::endpoints::{Access, Endpoint};
use weir_identity::roles::{Permission, Role};
use weir_ledger::Credits;
use weir_ledger::verify::verify;

use crate::billing::is_settled;
use crate::console::Browser;
use crate::swarms::{agent, ended, swarm};

const START: &str = "2026-03-04T05:30:00Z";

/// An organisation with its owner.
pub(crate) struct Organisation<'a> {
    gateway: &'a Gateway,
    pub(crate) id: String,
    pub(crate) owner: Client,
}

impl<'a> Organisation<'a> {
    /// An organisation of the web user `owner`, with credits.
    pub(crate) async fn new(gateway: &'a Gateway, owner: &str, credits: u32) -> Self {
        let owner = gateway.web(owner);
        let made = owner
            .post("/organisations", &json!({ "name": "Acme" }))
            .await;
        assert_eq!(made.status, 201, "{}", made.text());
        let id = text(&made.json(), "organisation_id");
        if credits > 0 {
            top_up(gateway.app(), &id, Credits::whole(credits)).await;
        }
        Self { gateway, id, owner }
    }

    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/organisations/{}{rest}", self.id)
    }

    /// A web user who acts for the organisation.
    pub(crate) fn acting(&self, user: &str) -> Client {
        self.gateway
            .web(user)
            .with_header("x-weir-account", &self.id)
    }

    /// Makes a web user a member with a role, by an invitation. Returns the user's id.
    pub(crate) async fn join(&self, user: &str, role: &str) -> String {
        let code = self.invite(&format!("{user}@example.com"), role).await;
        let joined = self
            .gateway
            .web(user)
            .post("/invitations/accept", &json!({ "code": code }))
            .await;
        assert_eq!(joined.status, 200, "{}", joined.text());
        assert_eq!(
            joined.json(),
            json!({ "organisation_id": self.id, "role": role })
        );
        self.gateway.web_user_id(user).await
    }

    /// Invites an address. Returns the invitation's code.
    pub(crate) async fn invite(&self, email: &str, role: &str) -> String {
        let body = json!({ "email": email, "role": role });
        let invited = self.owner.post(&self.path("/invitations"), &body).await;
        assert_eq!(invited.status, 201, "{}", invited.text());
        text(&invited.json(), "code")
    }

    /// A key of a member in the organisation, with the scope `full` unless the body has another: the client with it, and
    /// its id.
    pub(crate) async fn key(&self, user: &str, mut body: Value) -> (Client, String) {
        if body["scope"].is_null() {
            body["scope"] = json!("full");
        }
        let made = self.acting(user).post("/api-keys", &body).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let made = made.json();
        let client = self.gateway.stranger().with_key(&text(&made, "api_key"));
        (client, text(&made, "key_id"))
    }

    async fn put_budget(&self, of: &str, id: Option<&str>, budgets: Value) -> Answer {
        let body = json!({ "of": of, "id": id, "budgets": budgets });
        put(&self.owner, &self.path("/budgets"), &body).await
    }

    async fn budgets(&self) -> Vec<Value> {
        let shown = self.owner.get(&self.path("/budgets")).await.json();
        shown["budgets"].as_array().expect("a list").clone()
    }
}

pub(crate) fn text(json: &Value, field: &str) -> String {
    json[field]
        .as_str()
        .unwrap_or_else(|| panic!("{field} in {json}"))
        .to_owned()
}

pub(crate) async fn put(client: &Client, path: &str, body: &Value) -> Answer {
    let body = Bytes::from(body.to_string());
    client
        .send(Method::PUT, path, Some("application/json"), body)
        .await
}

pub(crate) async fn patch(client: &Client, path: &str, body: &Value) -> Answer {
    let body = Bytes::from(body.to_string());
    client
        .send(Method::PATCH, path, Some("application/json"), body)
        .await
}

/// Two nodes on one PostgreSQL, and the Redis that they share.
async fn two_nodes(upstream: &Upstream) -> (Gateway, Gateway, Redis) {
    let (database, cache) = (Postgres::shared().create_database().await, Redis::start());
    let builder = || {
        let builder = Gateway::builder().postgres(&database).redis(&cache.url());
        builder.upstream("scripted", upstream)
    };
    let first = builder().start().await;
    let second = builder().sharing_secrets_of(&first).start().await;
    (first, second, cache)
}

async fn balance(client: &Client) -> f64 {
    let synced = client
        .post("/billing/sync-balance", &json!({}))
        .await
        .json();
    synced["topup_balance"].as_f64().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn members_share_one_wallet_within_their_caps_until_they_are_removed() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 10, 300));
    on_each_database(
        START,
        |builder| builder.upstream("scripted", &upstream),
        async |gateway, _| {
            let acme = Organisation::new(&gateway, "olivia", 0).await;
            let ada = acme.join("ada", "admin").await;
            let max = acme.join("max", "member").await;

            // Organisations have no free credits.
            let (by_max, max_key) = acme.key("max", json!({ "name": "laptop" })).await;
            let refused = by_max.post("/chat", &chat("scripted", "x")).await;
            refused.error(429, "QUOTA_EXCEEDED");
            top_up(gateway.app(), &acme.id, Credits::whole(100)).await;

            let (by_ada, _) = acme.key("ada", json!({})).await;
            let (by_olivia, _) = acme.key("olivia", json!({})).await;
            let cap = json!([{ "credits": 4, "window": "month" }]);
            let capped = acme.put_budget("member", Some(&max), cap).await;
            assert_eq!(capped.status, 200, "{}", capped.text());
            for client in [&by_max, &by_ada, &by_olivia] {
                let answer = client.post("/chat", &chat("scripted", "x")).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
            }
            is_settled(&gateway).await;
            assert_eq!(balance(&by_olivia).await, balance(&by_ada).await);
            assert!(balance(&by_olivia).await < 100.0);
            assert_eq!(
                balance(&gateway.web("olivia")).await,
                0.0,
                "her own account"
            );

            // The cap of one member does not concern another.
            let mut answers = Vec::new();
            for _ in 0..4 {
                answers.push(by_max.post("/chat", &chat("scripted", "x")).await);
            }
            let refused = answers
                .iter()
                .find(|answer| answer.status == 429)
                .expect("the cap");
            let error = refused.error(429, "BUDGET_EXCEEDED");
            assert_eq!(error["budget_of"], "member");
            assert_eq!(
                by_ada.post("/chat", &chat("scripted", "x")).await.status,
                200
            );
            let own = gateway.web("max").get(&acme.path("/budgets")).await.json();
            assert_eq!(own["budgets"][0]["of"], "member", "{own}");

            // Removal ends the member's keys at once, and only these.
            assert_eq!(acme.acting("max").get("/api-keys").await.status, 200);
            let removed = acme
                .acting("ada")
                .delete(&acme.path(&format!("/members/{max}")))
                .await;
            assert_eq!(removed.status, 204, "{}", removed.text());
            by_max
                .post("/chat", &chat("scripted", "x"))
                .await
                .error(401, "UNAUTHENTICATED");
            acme.acting("max")
                .get("/usage/me")
                .await
                .error(404, "NOT_FOUND");
            assert_eq!(
                by_ada.post("/chat", &chat("scripted", "x")).await.status,
                200
            );
            let keys = acme.owner.clone().with_header("x-weir-account", &acme.id);
            let keys = keys.get("/api-keys").await.json();
            let keys = keys["api_keys"].as_array().expect("a list").clone();
            let gone = keys
                .iter()
                .find(|key| key["key_id"] == max_key)
                .expect("the key");
            assert_eq!(gone["disabled"], true);
            assert_eq!(gone["holder_id"], max);
            let members = acme.owner.get(&acme.path("/members")).await.json();
            let ids: Vec<_> = members["members"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|member| member["user_id"].clone())
                .collect();
            assert!(
                ids.contains(&json!(ada)) && !ids.contains(&json!(max)),
                "{members}"
            );

            is_settled(&gateway).await;
            let violations = verify(&gateway.app().database, gateway.app().ledger.now())
                .await
                .expect("an answer");
            assert!(violations.is_empty(), "{violations:?}");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_is_good_once_for_the_verified_address_that_it_names() {
    on_each_database(
        START,
        |builder| builder,
        async |gateway, clock| {
            let acme = Organisation::new(&gateway, "olivia", 0).await;
            let accept = async |user: &str, code: &str| {
                let body = json!({ "code": code });
                gateway.web(user).post("/invitations/accept", &body).await
            };
            let code = acme.invite("Max@Example.com", "member").await;
            accept("eve", &code)
                .await
                .error(403, "INVITATION_FOR_ANOTHER");
            // Another address at the same time: only one of them joins.
            let both = join_all([accept("max", &code), accept("max", &code)]).await;
            let joined = both.iter().filter(|answer| answer.status == 200).count();
            assert_eq!(joined, 1);
            accept("max", &code).await.error(404, "INVITATION_INVALID");
            let again = acme.invite("max@example.com", "admin").await;
            accept("max", &again).await.error(409, "ALREADY_MEMBER");

            // A new invitation replaces an open one; a revoked and an expired one are worthless.
            let first = acme.invite("eve@example.com", "member").await;
            let second = acme.invite("eve@example.com", "viewer").await;
            accept("eve", &first).await.error(404, "INVITATION_INVALID");
            let open = acme.owner.get(&acme.path("/invitations")).await.json();
            let open = open["invitations"].as_array().expect("a list").clone();
            let eve = open
                .iter()
                .find(|open| open["email"] == "eve@example.com")
                .expect("one");
            assert!(
                !open.iter().any(|open| open.to_string().contains("winv_")),
                "{open:?}"
            );
            let path = acme.path(&format!("/invitations/{}", text(eve, "invitation_id")));
            assert_eq!(acme.owner.delete(&path).await.status, 204);
            acme.owner.delete(&path).await.error(404, "NOT_FOUND");
            accept("eve", &second)
                .await
                .error(404, "INVITATION_INVALID");
            let third = acme.invite("eve@example.com", "viewer").await;
            clock.advance(Duration::from_secs(8 * 86_400));
            accept("eve", &third).await.error(404, "INVITATION_INVALID");

            for (body, field) in [
                (json!({ "email": "eve", "role": "member" }), "email"),
                (
                    json!({ "email": "eve@example.com", "role": "owner" }),
                    "role",
                ),
                (
                    json!({ "email": "eve@example.com", "role": "king" }),
                    "role",
                ),
                (
                    json!({ "email": "e@x", "role": "member", "expires_in_days": 31 }),
                    "expires_in_days",
                ),
            ] {
                let owner = gateway.web("olivia");
                let refused = owner.post(&acme.path("/invitations"), &body).await;
                let error = refused.error(400, "INVALID_REQUEST");
                assert_eq!(error["param"], field, "{error}");
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_organisation_always_has_an_owner_and_only_owners_name_owners() {
    on_each_database(
        START,
        |builder| builder,
        async |gateway, _| {
            let acme = Organisation::new(&gateway, "olivia", 0).await;
            let olivia = gateway.web_user_id("olivia").await;
            let ada = acme.join("ada", "admin").await;
            let max = acme.join("max", "member").await;
            let by_ada = gateway.web("ada");
            let member = |id: &str| acme.path(&format!("/members/{id}"));
            let role = |role: &str| json!({ "role": role });

            acme.owner
                .delete(&member(&olivia))
                .await
                .error(409, "LAST_OWNER");
            patch(&acme.owner, &member(&olivia), &role("admin"))
                .await
                .error(409, "LAST_OWNER");
            patch(&by_ada, &member(&max), &role("owner"))
                .await
                .error(403, "FORBIDDEN");
            patch(&by_ada, &member(&olivia), &role("viewer"))
                .await
                .error(403, "FORBIDDEN");
            by_ada
                .delete(&member(&olivia))
                .await
                .error(403, "FORBIDDEN");
            let body = json!({ "user_id": max });
            by_ada
                .post(&acme.path("/transfer"), &body)
                .await
                .error(403, "FORBIDDEN");

            // A new role applies to keys at once.
            let (by_key, _) = acme.key("max", json!({})).await;
            assert_eq!(by_key.get("/usage/me").await.status, 200);
            by_key.get("/usage/requests").await.error(403, "FORBIDDEN");
            assert_eq!(
                patch(&by_ada, &member(&max), &role("viewer")).await.status,
                200
            );
            assert_eq!(by_key.get("/usage/requests").await.status, 200);
            by_key
                .post("/chat", &chat("demo", "x"))
                .await
                .error(403, "FORBIDDEN");

            let body = json!({ "user_id": ada });
            let moved = acme.owner.post(&acme.path("/transfer"), &body).await;
            assert_eq!(moved.json()["role"], "admin", "{}", moved.text());
            patch(&acme.owner, &member(&ada), &role("viewer"))
                .await
                .error(403, "FORBIDDEN");
            // Everybody may leave but the last owner.
            assert_eq!(acme.owner.delete(&member(&olivia)).await.status, 204);
            by_ada.delete(&member(&ada)).await.error(409, "LAST_OWNER");
            gateway
                .web("max")
                .delete(&member(&ada))
                .await
                .error(403, "FORBIDDEN");
            assert_eq!(gateway.web("max").delete(&member(&max)).await.status, 204);
            gateway
                .web("max")
                .get(&acme.path(""))
                .await
                .error(404, "NOT_FOUND");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_accounts_are_members_or_viewers() {
    on_each_database(
        START,
        |builder| builder,
        async |gateway, _| {
            let acme = Organisation::new(&gateway, "olivia", 0).await;
            let body = json!({ "name": "ci" });
            let robot = acme
                .owner
                .post(&acme.path("/service-accounts"), &body)
                .await;
            let robot = text(&robot.json(), "user_id");
            let member = acme.path(&format!("/members/{robot}"));
            for role in Role::ALL {
                let changed = patch(&acme.owner, &member, &json!({ "role": role })).await;
                match role {
                    Role::Member | Role::Viewer => assert_eq!(changed.status, 200, "{role:?}"),
                    _ => assert_eq!(changed.error(400, "INVALID_REQUEST")["param"], "role"),
                }
                // The database refuses the role of another writer, too.
                let written = sqlx::query("UPDATE members SET role = $1 WHERE user_id = $2")
                    .bind(role.name())
                    .bind(&robot)
                    .execute(gateway.app().database.writer())
                    .await;
                assert_eq!(written.is_ok(), role >= Role::Member, "{role:?}");
            }
            let transfer = json!({ "user_id": robot });
            let refused = acme.owner.post(&acme.path("/transfer"), &transfer).await;
            refused.error(404, "NOT_FOUND");
            let olivia = gateway.web_user_id("olivia").await;
            let leave = acme
                .owner
                .delete(&acme.path(&format!("/members/{olivia}")))
                .await;
            leave.error(409, "LAST_OWNER");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_enabled_owner_keeps_the_role() {
    on_each_database(
        START,
        |builder| builder,
        async |gateway, _| {
            let acme = Organisation::new(&gateway, "olivia", 0).await;
            let olivia = gateway.web_user_id("olivia").await;
            let ada = acme.join("ada", "admin").await;
            let max = acme.join("max", "member").await;
            let member = |id: &str| acme.path(&format!("/members/{id}"));
            let role = |role: &str| json!({ "role": role });
            let named = patch(&acme.owner, &member(&ada), &role("owner")).await;
            assert_eq!(named.status, 200, "{}", named.text());
            let admin = gateway.admin("root").await;
            let operator = async |user: &str, act: &str| {
                let done = admin
                    .post(&format!("/admin/users/{user}/{act}"), &json!({}))
                    .await;
                assert!(done.status.is_success(), "{}", done.text());
            };
            operator(&ada, "disable").await;
            let left = acme.owner.delete(&member(&olivia)).await;
            left.error(409, "LAST_OWNER");
            let demoted = patch(&acme.owner, &member(&olivia), &role("member")).await;
            demoted.error(409, "LAST_OWNER");
            let to_ada = json!({ "user_id": ada });
            let transferred = acme.owner.post(&acme.path("/transfer"), &to_ada).await;
            transferred.error(409, "LAST_OWNER");
            let confirmed = Bytes::from(json!({ "confirm": olivia }).to_string());
            let json = Some("application/json");
            let erased = acme
                .owner
                .send(Method::DELETE, "/users/me", json, confirmed)
                .await;
            erased.error(409, "LAST_OWNER");

            // An operator's decision stands, and the others work on.
            operator(&olivia, "disable").await;
            acme.owner
                .get(&acme.path(""))
                .await
                .error(403, "USER_DISABLED");
            let (by_max, _) = acme.key("max", json!({})).await;
            assert_eq!(by_max.get("/models").await.status, 200);
            let left = gateway.web("max").delete(&member(&max)).await;
            assert_eq!(left.status, 204, "{}", left.text());
            for owner in [&ada, &olivia] {
                operator(owner, "enable").await;
            }
            assert_eq!(acme.owner.delete(&member(&olivia)).await.status, 204);
        },
    )
    .await;
}

/// The migration mends the roles that earlier releases allowed, so that a node starts.
#[tokio::test(flavor = "multi_thread")]
async fn the_migration_mends_roles_of_service_accounts() {
    let migration = "0046_restrict_roles_of_service_accounts.sql";
    let migrations = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/both/");
    let migration = std::fs::read_to_string(format!("{migrations}{migration}"));
    let migration = migration.expect("a migration");
    on_each_database(
        START,
        |builder| builder,
        async |gateway, _| {
            let acme = Organisation::new(&gateway, "olivia", 0).await;
            let (ada, bob) = (
                acme.join("ada", "admin").await,
                acme.join("bob", "admin").await,
            );
            let mut robots = Vec::new();
            for name in ["owner", "admin", "billing", "viewer"] {
                let made = acme
                    .owner
                    .post(&acme.path("/service-accounts"), &json!({ "name": name }))
                    .await;
                robots.push((text(&made.json(), "user_id"), name));
            }
            let olivia = gateway.web_user_id("olivia").await;
            let database = &gateway.app().database;
            let run = async |sql: String| {
                let done = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.clone()))
                    .execute(database.writer())
                    .await;
                done.unwrap_or_else(|error| panic!("{sql}: {error}"));
            };
            run("ALTER TABLE members DROP COLUMN kind".to_owned()).await;
            for (robot, role) in &robots {
                run(format!(
                    "UPDATE members SET role = '{role}' WHERE user_id = '{robot}'"
                ))
                .await;
            }
            run(format!("DELETE FROM members WHERE user_id = '{olivia}'")).await;
            run(format!(
                "UPDATE members SET created_at = 0 WHERE user_id = '{bob}'"
            ))
            .await;
            run(migration.clone()).await;
            let role_of = async |user: &str| {
                let role: String =
                    sqlx::query_scalar("SELECT role FROM members WHERE user_id = $1")
                        .bind(user.to_owned())
                        .fetch_one(database.reader())
                        .await
                        .expect("a member");
                role
            };
            let mut roles = Vec::new();
            for (robot, _) in &robots {
                roles.push(role_of(robot).await);
            }
            assert_eq!(roles, ["member", "member", "viewer", "viewer"]);
            assert_eq!(
                (role_of(&bob).await, role_of(&ada).await),
                ("owner".into(), "admin".into())
            );
        },
    )
    .await;
}

/// The endpoints that people and keys use for an account, with their permissions.
pub(crate) fn endpoints_of_accounts() -> impl Iterator<Item = (Endpoint, Permission)> {
    endpoints().into_iter().filter_map(|row| match row.access {
        Access::User(permission) | Access::Web(permission) => Some((row, permission)),
        _ => None,
    })
}

/// A route has its permission from its row. A router of its own would have routes without rows.
#[test]
fn every_endpoint_has_a_permission() {
    assert!(endpoints_of_accounts().count() > 80);
    let sources = files(&root().join("host"), "rs");
    for path in sources
        .iter()
        .filter(|path| !path.ends_with("identity/src/endpoints.rs"))
    {
        let text = fs::read_to_string(path).expect("UTF-8");
        let makes_route = text.contains(".route(\"") || text.contains("Router::new()");
        assert!(!makes_route, "{}: add a row instead", path.display());
    }
}

/// Every role against every endpoint, over the API: the table decides, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn each_role_may_do_what_the_table_says_and_no_more() {
    let gateway = Gateway::builder().swarms().start().await;
    let acme = Organisation::new(&gateway, "owner", 100).await;
    for role in ["admin", "billing", "member", "viewer"] {
        acme.join(role, role).await;
    }
    let mut refused = 0;
    for (endpoint, permission) in endpoints_of_accounts() {
        let name = endpoint.name();
        // Nobody leaves, and nothing is deleted, before each role has had its turn.
        if permission == Permission::Own || name.ends_with("/members/{user_id}") {
            continue;
        }
        let path = endpoint.path.replace("{organisation_id}", &acme.id);
        let path = fill(&path, "0000000000000000000000000000abcd");
        for role in Role::ALL {
            let client = acme.acting(role.name());
            let method = endpoint.method.clone().expect("a method");
            let body = match method {
                Method::GET | Method::DELETE => Bytes::new(),
                _ => Bytes::from("{}"),
            };
            let answer = client
                .send(method, &path, Some("application/json"), body)
                .await;
            let is_refused = answer.status == 403 && answer.json()["error"]["code"] == "FORBIDDEN";
            // Vendors' endpoints have their own error codes.
            let is_refused = is_refused || answer.text().contains("Your role in this organisation");
            assert_eq!(
                !is_refused,
                role.allows(permission),
                "{name} as {role:?}: {}",
                answer.text()
            );
            refused += i32::from(is_refused);
        }
    }
    assert!(refused > 60, "{refused}");
    for role in ["admin", "billing", "member", "viewer"] {
        let client = gateway.web(role);
        client.delete(&acme.path("")).await.error(403, "FORBIDDEN");
    }
}

/// An id of another organisation is as unknown as an id without a record.
#[tokio::test(flavor = "multi_thread")]
async fn organisations_are_closed_to_others() {
    let gateway = Gateway::builder().swarms().start().await;
    let acme = Organisation::new(&gateway, "olivia", 100).await;
    let other = Organisation::new(&gateway, "mallory", 100).await;
    let max = acme.join("max", "member").await;
    let project = acme
        .owner
        .post(&acme.path("/projects"), &json!({ "name": "p" }))
        .await
        .json();
    let project = text(&project, "project_id");
    let (key, key_id) = acme.key("max", json!({ "project_id": project })).await;
    let robot = json!({ "name": "robot" });
    let robot = acme
        .owner
        .post(&acme.path("/service-accounts"), &robot)
        .await
        .json();
    let robot = text(&robot, "user_id");
    acme.invite("eve@example.com", "member").await;
    let before = acme.owner.get(&acme.path("/members")).await.json();

    let outsider = gateway.web("mallory");
    for endpoint in endpoints() {
        if !endpoint
            .path
            .starts_with("/organisations/{organisation_id}")
        {
            continue;
        }
        for (organisation, ids) in [
            (&acme.id, [&*max, &*project, &*robot, &*key_id]),
            // In their own organisation, these ids are unknown.
            (&other.id, [&*max, &*project, &*robot, &*key_id]),
        ] {
            for id in ids {
                let path = endpoint.path.replace("{organisation_id}", organisation);
                if organisation == &other.id && !path.contains('{') {
                    continue;
                }
                let path = fill(&path, id);
                let method = endpoint.method.clone().expect("a method");
                let body = match method {
                    Method::GET | Method::DELETE => Bytes::new(),
                    Method::PATCH => Bytes::from(r#"{"role":"viewer"}"#),
                    _ => Bytes::from("{}"),
                };
                let answer = outsider
                    .send(method, &path, Some("application/json"), body)
                    .await;
                assert_eq!(
                    answer.status,
                    404,
                    "{} {id}: {}",
                    endpoint.name(),
                    answer.text()
                );
                assert!(!answer.text().contains(&max), "{}", answer.text());
            }
        }
    }
    let acting = gateway
        .web("mallory")
        .with_header("x-weir-account", &acme.id);
    acting.get("/usage/me").await.error(404, "NOT_FOUND");
    let acting = gateway.web("mallory").with_header("x-weir-account", &max);
    acting.get("/usage/me").await.error(404, "NOT_FOUND");
    for (field, id) in [("project_id", &project), ("service_account_id", &robot)] {
        let refused = other
            .acting("mallory")
            .post("/api-keys", &json!({ field: id }))
            .await;
        assert_eq!(refused.error(400, "INVALID_REQUEST")["param"], field);
        // A personal account has neither.
        let refused = gateway
            .web("olivia")
            .post("/api-keys", &json!({ field: id }))
            .await;
        assert_eq!(refused.error(400, "INVALID_REQUEST")["param"], field);
    }
    assert_eq!(acme.owner.get(&acme.path("/members")).await.json(), before);
    assert_eq!(key.post("/chat", &chat("demo", "x")).await.status, 200);
    // A key pays for its own account alone.
    for (account, status) in [(&acme.id, 200), (&other.id, 400), (&max, 400)] {
        let named = key.clone().with_header("x-weir-account", account);
        let answer = named.post("/chat", &chat("demo", "x")).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }

    // Within an organisation, a member manages only their own keys.
    acme.join("ann", "member").await;
    let by_ann = acme.acting("ann");
    by_ann
        .delete(&format!("/api-keys/{key_id}"))
        .await
        .error(404, "NOT_FOUND");
    assert_eq!(by_ann.get("/api-keys").await.json()["api_keys"], json!([]));
    by_ann
        .post("/api-keys", &json!({ "service_account_id": robot }))
        .await
        .error(403, "FORBIDDEN");
}

#[tokio::test(flavor = "multi_thread")]
async fn projects_and_service_accounts_hold_keys_that_end_with_them() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 10, 300));
    on_each_database(
        START,
        |builder| builder.upstream("scripted", &upstream),
        async |gateway, _| {
            let acme = Organisation::new(&gateway, "olivia", 100).await;
            let made = acme
                .owner
                .post(&acme.path("/projects"), &json!({ "name": "search" }))
                .await;
            let project = text(&made.json(), "project_id");
            let made = acme
                .owner
                .post(&acme.path("/service-accounts"), &json!({ "name": "ci" }))
                .await;
            let robot = text(&made.json(), "user_id");
            let body = json!({ "project_id": project, "service_account_id": robot });
            let (by_robot, robot_key) = acme.key("olivia", body).await;
            let (by_olivia, _) = acme.key("olivia", json!({ "project_id": project })).await;
            let (plain, _) = acme.key("olivia", json!({})).await;
            let cap = json!([{ "credits": 4, "window": "total" }]);
            assert_eq!(
                acme.put_budget("project", Some(&project), cap).await.status,
                200
            );

            // Both keys of the project share its budget.
            let mut codes = Vec::new();
            for client in [&by_robot, &by_olivia].into_iter().cycle().take(6) {
                let answer = client.post("/chat", &chat("scripted", "x")).await;
                codes.push(answer.status.as_u16());
            }
            assert!(
                codes.starts_with(&[200]) && codes.ends_with(&[429]),
                "{codes:?}"
            );
            assert_eq!(
                plain.post("/chat", &chat("scripted", "x")).await.status,
                200
            );
            let standing = &acme.budgets().await[0];
            assert_eq!(
                (&standing["of"], &standing["id"]),
                (&json!("project"), &json!(project))
            );

            let listed = acme.owner.get(&acme.path("/service-accounts")).await.json();
            assert_eq!(listed["service_accounts"][0]["name"], "ci");
            let path = acme.path(&format!("/service-accounts/{robot}"));
            assert_eq!(acme.owner.delete(&path).await.status, 204);
            by_robot.get("/models").await.error(401, "UNAUTHENTICATED");
            let body = json!({ "service_account_id": robot });
            let refused = acme.acting("olivia").post("/api-keys", &body).await;
            assert_eq!(
                refused.error(400, "INVALID_REQUEST")["param"],
                "service_account_id"
            );

            let path = acme.path(&format!("/projects/{project}"));
            assert_eq!(acme.owner.delete(&path).await.status, 204);
            by_olivia.get("/models").await.error(401, "UNAUTHENTICATED");
            assert_eq!(plain.get("/models").await.status, 200);
            acme.owner.delete(&path).await.error(404, "NOT_FOUND");
            let keys = acme.acting("olivia").get("/api-keys").await.json();
            let keys = keys["api_keys"].as_array().expect("a list");
            let key = keys
                .iter()
                .find(|key| key["key_id"] == robot_key)
                .expect("the key");
            assert_eq!(
                (&key["disabled"], &key["holder_id"]),
                (&json!(true), &json!(robot))
            );
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_concurrent_requests_on_two_nodes_exceed_no_budget() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 10, 300));
    let (first, second, _cache) = two_nodes(&upstream).await;
    let acme = Organisation::new(&first, "olivia", 1_000).await;
    let olivia = first.web_user_id("olivia").await;
    let made = acme
        .owner
        .post(&acme.path("/projects"), &json!({ "name": "p" }))
        .await
        .json();
    let project = text(&made, "project_id");
    let (key, key_id) = acme.key("olivia", json!({ "project_id": project })).await;
    let other = key.at(second.address());
    let path = format!("/api-keys/{key_id}/budgets");
    for (of, id) in [
        ("key", &key_id),
        ("project", &project),
        ("member", &olivia),
        ("organisation", &String::new()),
        ("model", &"scripted".to_owned()),
    ] {
        // The budget of one scope allows some requests, not all.
        let cap = json!([{ "credits": 31, "window": "total" }]);
        let none = json!([]);
        let set = async |budgets: &Value| match of {
            "key" => {
                put(
                    &acme.acting("olivia"),
                    &path,
                    &json!({ "budgets": budgets }),
                )
                .await
            }
            "organisation" => acme.put_budget(of, None, budgets.clone()).await,
            _ => acme.put_budget(of, Some(id), budgets.clone()).await,
        };
        let answer = set(&cap).await;
        assert_eq!(answer.status, 200, "{of}: {}", answer.text());
        let (question, clients) = (chat("scripted", "x"), [&key, &other]);
        let requests = (0..50).map(|number| clients[number % 2].post("/chat", &question));
        let answers = join_all(requests).await;
        let served = answers.iter().filter(|answer| answer.status == 200).count();
        for answer in answers.iter().filter(|answer| answer.status != 200) {
            assert_eq!(answer.error(429, "BUDGET_EXCEEDED")["budget_of"], of);
        }
        is_settled(&first).await;
        is_settled(&second).await;
        let shown = acme.budgets().await;
        let standing = shown
            .iter()
            .find(|item| item["of"] == of)
            .expect("the budget");
        let used = standing["budgets"][0]["used"].as_f64().expect("a number");
        assert!((1..50).contains(&served), "{of}: {served} were served");
        assert!(used <= 31.0 && used > 0.0, "{of}: {standing}");
        assert_eq!(standing["budgets"][0]["held"], 0.0);
        assert_eq!(set(&none).await.status, 200);
    }
    let violations = verify(&first.app().database, first.app().ledger.now())
        .await
        .expect("an answer");
    assert!(violations.is_empty(), "{violations:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_and_repeats_stay_with_their_member() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("secret of ann"));
    let gateway = Gateway::with_upstream(&upstream).await;
    let acme = Organisation::new(&gateway, "olivia", 100).await;
    acme.join("ann", "member").await;
    acme.join("bob", "member").await;
    let ((ann, _), (bob, _)) = (
        acme.key("ann", json!({})).await,
        acme.key("bob", json!({})).await,
    );
    let mut question = chat("scripted", "x");
    question["session_id"] = json!("s1");
    let keyed = |client: &Client| client.clone().with_header("idempotency-key", "1");
    assert_eq!(keyed(&ann).post("/chat", &question).await.status, 200);
    is_settled(&gateway).await;
    assert_eq!(ann.get("/session/s1/history").await.status, 200);
    assert_eq!(
        acme.acting("ann").get("/session/s1/history").await.status,
        200
    );
    // Neither another member, nor the same person in their personal account, has the session.
    for client in [bob.clone(), acme.acting("olivia"), gateway.web("ann")] {
        client
            .get("/session/s1/history")
            .await
            .error(404, "NOT_FOUND");
    }
    let again = keyed(&ann).post("/chat", &question).await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    keyed(&bob)
        .post("/chat", &question)
        .await
        .error(409, "IDEMPOTENCY_KEY_REUSED");
}

#[tokio::test(flavor = "multi_thread")]
async fn swarms_and_tasks_belong_to_the_organisation_and_stop_with_the_membership() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 10, 5));
    on_each_database(
        START,
        |builder| builder.swarms().upstream("scripted", &upstream),
        async |gateway, _| {
            let acme = Organisation::new(&gateway, "olivia", 1_000).await;
            let admin = gateway.admin("root").await;
            let path = format!("/admin/users/{}/plan", acme.id);
            let set = admin.post(&path, &json!({ "plan": "pro" })).await;
            assert_eq!(set.status, 200, "{}", set.text());
            let max = acme.join("max", "member").await;
            acme.join("vera", "viewer").await;
            acme.join("bill", "billing").await;
            let asked = swarm(&[agent("a")]);
            let started = acme.acting("max").post("/swarms", &asked).await;
            assert_eq!(started.status, 202, "{}", started.text());
            let id = text(&started.json(), "execution_id");
            ended(&acme.acting("max"), &id).await;
            let path = format!("/swarms/{id}");
            for user in ["olivia", "max", "vera"] {
                let shown = acme.acting(user).get(&path).await;
                assert_eq!(
                    shown.json()["status"],
                    "completed",
                    "{user}: {}",
                    shown.text()
                );
            }
            acme.acting("bill").get(&path).await.error(403, "FORBIDDEN");
            gateway.web("max").get(&path).await.error(404, "NOT_FOUND");
            assert!(balance(&acme.acting("olivia")).await <= 1_000.0);

            let task =
                json!({ "name": "daily", "schedule": { "cron": "0 9 * * *", "time_zone": "UTC" }, "agents": [agent("a")] });
            let made = acme.acting("max").post("/api/agent/tasks", &task).await;
            assert_eq!(made.status, 201, "{}", made.text());
            let task_id = text(&made.json(), "task_id");
            let path = acme.path(&format!("/members/{max}"));
            assert_eq!(acme.owner.delete(&path).await.status, 204);
            let service = gateway.executor_service(DevAudience::Executor, &["swarm:run"]);
            let message =
                json!({ "task_id": task_id, "trigger_type": "manual", "message_id": "1" });
            let refused = service.post("/internal/agent/execute", &message).await;
            refused.error(403, "KEY_ENDED");
            let shown = acme
                .acting("olivia")
                .get(&format!("/api/agent/tasks/{task_id}"))
                .await;
            assert_eq!(shown.status, 200, "{}", shown.text());
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_change_only_their_own_swarms_and_tasks() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 10, 5));
    on_each_database(
        START,
        |builder| builder.swarms().upstream("scripted", &upstream),
        async |gateway, _| {
            let acme = Organisation::new(&gateway, "olivia", 1_000).await;
            let admin = gateway.admin("root").await;
            let path = format!("/admin/users/{}/plan", acme.id);
            let set = admin.post(&path, &json!({ "plan": "pro" })).await;
            assert_eq!(set.status, 200, "{}", set.text());
            for (user, role) in [("ada", "admin"), ("ann", "member"), ("max", "member")] {
                acme.join(user, role).await;
            }
            let (max_key, _) = acme.key("max", json!({})).await;
            let (ann_key, _) = acme.key("ann", json!({})).await;
            let task = json!({ "name": "t", "agents": [agent("a")] });
            for author in [acme.acting("ann"), ann_key] {
                for owner in [author.clone(), acme.acting("ada"), acme.acting("olivia")] {
                    let started = author.post("/swarms", &swarm(&[agent("a")])).await;
                    let id = text(&started.json(), "execution_id");
                    ended(&author, &id).await;
                    let run = format!("/swarms/{id}");
                    let made = author.post("/api/agent/tasks", &task).await;
                    let own = format!("/api/agent/tasks/{}", text(&made.json(), "task_id"));
                    for other in [acme.acting("max"), max_key.clone()] {
                        assert_eq!(other.get(&run).await.status, 200);
                        let cancel = format!("{run}/cancel");
                        other
                            .post(&cancel, &json!({}))
                            .await
                            .error(403, "FORBIDDEN");
                        other.delete(&run).await.error(403, "FORBIDDEN");
                        put(&other, &own, &task).await.error(403, "FORBIDDEN");
                        other.delete(&own).await.error(403, "FORBIDDEN");
                    }
                    assert_eq!(put(&owner, &own, &task).await.status, 200);
                    assert_eq!(owner.delete(&own).await.status, 204);
                    assert_eq!(owner.delete(&run).await.status, 204);
                    author.get(&run).await.error(404, "NOT_FOUND");
                }
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_never_loosen_a_limit_that_a_manager_set() {
    on_each_database(
        START,
        |builder| builder,
        async |gateway, _| {
            let acme = Organisation::new(&gateway, "olivia", 100).await;
            acme.join("max", "member").await;
            let day = |credits: u32| json!([{ "credits": credits, "window": "day" }]);
            let budgets = |list: Value| json!({ "budgets": list });
            let rates = |count: u32| json!({ "requests_per_minute": count });
            let data = |days: u32| json!({ "regions": ["eu"], "max_retention_days": days });
            let options = |value: &str| json!({ "filter_options": { "policy": value } });
            // Each limit: the path, none, a loose one, a middle one and a tight one.
            for (path, none, loose, middle, tight) in [
                (
                    "budgets",
                    budgets(json!([])),
                    budgets(day(30)),
                    budgets(day(20)),
                    budgets(day(10)),
                ),
                ("rates", json!({}), rates(30), rates(20), rates(10)),
                ("data-limits", json!({}), data(30), data(20), data(10)),
            ] {
                let (_, key) = acme.key("max", json!({})).await;
                let path = format!("/api-keys/{key}/{path}");
                let set =
                    async |user: &str, limit: &Value| put(&acme.acting(user), &path, limit).await;
                let done = async |user: &str, limit: &Value| {
                    let answer = set(user, limit).await;
                    assert_eq!(answer.status, 200, "{path} {limit}: {}", answer.text());
                };
                // Limits of their own.
                done("max", &tight).await;
                done("max", &none).await;
                done("max", &middle).await;
                // The owner's limit stands, even if it is the same one.
                done("olivia", &middle).await;
                for looser in [&loose, &none] {
                    set("max", looser).await.error(403, "FORBIDDEN");
                }
                done("max", &tight).await;
                set("max", &middle).await.error(403, "FORBIDDEN");
                done("olivia", &none).await;
                done("max", &tight).await;
                done("max", &none).await;
                let revoked = acme.acting("max").delete(&format!("/api-keys/{key}")).await;
                assert_eq!(revoked.status, 204);
            }
            let (_, key) = acme.key("max", json!({})).await;
            let path = format!("/api-keys/{key}/filter-options");
            let none = json!({ "filter_options": {} });
            assert_eq!(
                put(&acme.acting("max"), &path, &options("a")).await.status,
                200
            );
            assert_eq!(
                put(&acme.acting("olivia"), &path, &options("b"))
                    .await
                    .status,
                200
            );
            for other in [&options("a"), &none] {
                put(&acme.acting("max"), &path, other)
                    .await
                    .error(403, "FORBIDDEN");
            }
            // An owner sets rates of a key beside those of other parts.
            let body = json!({ "of": "key", "id": key, "rates": rates(10) });
            let answer = put(&acme.owner, &acme.path("/rates"), &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let path = format!("/api-keys/{key}/rates");
            put(&acme.acting("max"), &path, &json!({}))
                .await
                .error(403, "FORBIDDEN");
            // The setter of limits of earlier releases is unknown.
            let forget = sqlx::query("UPDATE api_keys SET managed_limits = NULL WHERE id = $1");
            let forgotten = forget
                .bind(&key)
                .execute(gateway.app().database.writer())
                .await;
            forgotten.expect("an answer");
            let path = format!("/api-keys/{key}/budgets");
            assert_eq!(
                put(&acme.acting("max"), &path, &budgets(day(10)))
                    .await
                    .status,
                200
            );
            // The scope, the models and the expiry of a key never change.
            for path in ["scope", "models", "expires-in-days", "expiry"] {
                let path = format!("/api-keys/{key}/{path}");
                put(&acme.acting("max"), &path, &json!({}))
                    .await
                    .error(404, "NOT_FOUND");
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_needs_an_empty_wallet_and_ends_all_keys() {
    on_each_database(
        START,
        |builder| builder,
        async |gateway, _| {
            let acme = Organisation::new(&gateway, "olivia", 10).await;
            let (key, _) = acme.key("olivia", json!({})).await;
            acme.owner
                .delete(&acme.path(""))
                .await
                .error(409, "ORGANISATION_IN_USE");
            assert_eq!(key.get("/models").await.status, 200);
            let gone = acme.owner.delete(&acme.path("?forfeit_credits=true")).await;
            assert_eq!(gone.status, 204, "{}", gone.text());
            key.get("/models").await.error(401, "UNAUTHENTICATED");
            acme.owner.get(&acme.path("")).await.error(404, "NOT_FOUND");
            acme.acting("olivia")
                .get("/usage/me")
                .await
                .error(404, "NOT_FOUND");
            assert_eq!(
                acme.owner.get("/organisations").await.json(),
                json!({ "organisations": [] })
            );
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_owns_at_most_ten_organisations() {
    let gateway = Gateway::start().await;
    let olivia = gateway.web("olivia");
    let made = join_all((0..15).map(|number| {
        let (olivia, body) = (olivia.clone(), json!({ "name": format!("o{number}") }));
        async move { olivia.post("/organisations", &body).await }
    }));
    let made = made.await;
    let ok = made.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(ok, 10);
    let refused = made
        .iter()
        .find(|answer| answer.status != 201)
        .expect("one");
    refused.error(429, "ORGANISATION_LIMIT_REACHED");
    for name in ["", "  ", "a\nb", &"x".repeat(101)] {
        let refused = olivia
            .post("/organisations", &json!({ "name": name }))
            .await;
        assert_eq!(refused.error(400, "INVALID_REQUEST")["param"], "name");
    }
}

/// The alerts of budgets among the notices of an account: the kind of part, the share and the window.
async fn alerts(client: &Client) -> Vec<Value> {
    let notices = client.get("/billing/notices").await.json();
    let notices = notices["notices"].as_array().expect("a list").clone();
    let alerts = notices
        .into_iter()
        .filter(|notice| notice["kind"] == "budget_alert");
    alerts
        .map(|notice| json!([notice["data"]["of"], notice["data"]["percent"]]))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_alerts_once_at_80_and_once_at_100_percent() {
    let upstream = Upstream::start().await;
    on_each_database(
        START,
        |builder| builder.upstream("scripted", &upstream),
        async |gateway, _| {
            let acme = Organisation::new(&gateway, "olivia", 100).await;
            let olivia = gateway.web_user_id("olivia").await;
            let (key, _) = acme.key("olivia", json!({})).await;
            let charge = async |tokens: u64| {
                upstream.will(Reply::chat_with_usage("fine", 10, tokens));
                let mut asked = chat("scripted", "x");
                asked["max_tokens"] = json!(tokens);
                let answer = key.post("/chat", &asked).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                is_settled(&gateway).await;
                answer.json()["usage"]["credits"].as_f64().expect("a number")
            };
            let price = charge(1_000).await;
            let cap = json!([{ "credits": (price * 2_000_000.0).ceil() / 1_000_000.0, "window": "month" }]);
            for (of, id) in [("member", Some(&*olivia)), ("organisation", None)] {
                let set = acme.put_budget(of, id, cap.clone()).await;
                assert_eq!(set.status, 200, "{}", set.text());
            }
            let acting = acme.acting("olivia");
            charge(1_000).await;
            assert_eq!(alerts(&acting).await, [0; 0], "half of it is used");
            charge(700).await;
            let until = async |wanted: Value| {
                patiently(async {
                    loop {
                        let mut found = alerts(&acting).await;
                        found.sort_by_key(Value::to_string);
                        if json!(found) == wanted {
                            return;
                        }
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                })
                .await;
            };
            until(json!([["member", 80], ["organisation", 80]])).await;
            // Another charge in the window does not repeat the alert.
            let charged = charge(200).await;
            let rest = acme.budgets().await[0]["budgets"][0]["left"].as_f64().expect("a number");
            assert!(rest > 0.0, "{rest} after {charged}");
            let mark = "SELECT CAST(COUNT(*) AS BIGINT) FROM accounts WHERE budget_alert_at IS NOT NULL";
            let marked: i64 = sqlx::query_scalar(mark)
                .fetch_one(gateway.app().database.reader())
                .await
                .expect("an answer");
            assert_eq!(marked, 0, "no alert is due");
            until(json!([["member", 80], ["organisation", 80]])).await;
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rates_of_a_part_hold_on_all_nodes_and_count_tokens_when_they_are_charged() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 30, 30));
    let (first, second, _cache) = two_nodes(&upstream).await;
    let acme = Organisation::new(&first, "olivia", 1_000).await;
    let max = acme.join("max", "member").await;
    let (by_max, max_key) = acme.key("max", json!({})).await;
    let (by_olivia, _) = acme.key("olivia", json!({})).await;
    let set = async |of: &str, id: Option<&str>, rates: Value| {
        let body = json!({ "of": of, "id": id, "rates": rates });
        let answer = put(&acme.owner, &acme.path("/rates"), &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    let question = chat("scripted", "x");
    let ask = async |client: &Client| client.post("/chat", &question).await;

    // The key is in the cache of both nodes before its member gets a rate.
    for node in [&first, &second] {
        assert_eq!(ask(&by_max.at(node.address())).await.status, 200);
    }
    set("member", Some(&max), json!({ "requests_per_minute": 3 })).await;
    let mut served = 0;
    let mut refused = None;
    for number in 0..6 {
        let node = [&first, &second][number % 2];
        let answer = ask(&by_max.at(node.address())).await;
        match answer.status.as_u16() {
            200 => served += 1,
            _ => refused = Some(answer),
        }
    }
    assert_eq!(served, 3);
    let refused = refused.expect("the rate");
    let error = refused.error(429, "RATE_LIMITED");
    assert_eq!(
        (&error["rate_of"], &error["unit"]),
        (&json!("member"), &json!("requests"))
    );
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(ask(&by_olivia).await.status, 200, "another member");
    set("member", Some(&max), json!({})).await;
    assert_eq!(ask(&by_max).await.status, 200, "without a rate");

    // Each request uses 60 tokens; the second one exceeds 100, so the third waits.
    for (of, id) in [
        ("key", Some(&*max_key)),
        ("model", Some("scripted")),
        ("organisation", None),
    ] {
        set(of, id, json!({ "tokens_per_minute": 100 })).await;
        for _ in 0..2 {
            assert_eq!(ask(&by_max).await.status, 200, "{of}");
        }
        is_settled(&first).await;
        let error = ask(&by_max.at(second.address()))
            .await
            .error(429, "RATE_LIMITED");
        assert_eq!(
            (&error["rate_of"], &error["unit"]),
            (&json!(of), &json!("tokens"))
        );
        set(of, id, json!({})).await;
    }
    let listed = acme.owner.get(&acme.path("/rates")).await.json();
    assert_eq!(listed, json!({ "rates": [] }));

    // A personal account limits its keys, too.
    let web = first.web("paul");
    let made = web.post("/api-keys", &json!({})).await.json();
    let (key, id) = (text(&made, "api_key"), text(&made, "key_id"));
    let path = format!("/api-keys/{id}/rates");
    let answer = put(&web, &path, &json!({ "requests_per_minute": 1 })).await;
    assert_eq!(answer.json(), json!({ "requests_per_minute": 1 }));
    let key = first.stranger().with_key(&key);
    assert_eq!(ask(&key).await.status, 200);
    assert_eq!(ask(&key).await.error(429, "RATE_LIMITED")["rate_of"], "key");
    for wrong in [
        json!({ "requests_per_minute": 0 }),
        json!({ "requests": 1 }),
    ] {
        put(&web, &path, &wrong).await.error(400, "INVALID_REQUEST");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_acts_for_the_chosen_account_within_the_users_role() {
    let gateway = Gateway::start().await;
    let mut olivia = Browser::of(&gateway, "olivia").await;
    let mut max = Browser::of(&gateway, "max").await;
    const PAGE: &str = "/console/organisations";
    let form = |path: &str| format!("{PAGE}/{path}");
    let done = |answer: &Answer| assert_eq!(answer.status, 303, "{}", answer.text());

    done(&olivia.post(PAGE, &[("name", "Acme <b>")]).await);
    let shown = olivia.page(PAGE).await;
    assert!(
        shown.contains("Acme") && !shown.contains("Acme <b>"),
        "{shown}"
    );
    let invited = [("email", "max@example.com"), ("role", "member")];
    done(&olivia.post(&form("invite"), &invited).await);
    let link = olivia.page(&form("invited")).await;
    let (_, code) = link.split_once("/console/organisations#").expect("a link");
    let code = code.split('<').next().expect("a code").to_owned();
    let again = olivia.get(&form("invited")).await;
    assert_eq!(again.status, 303, "the link is shown once");

    done(&max.post(&form("accept"), &[("code", &code)]).await);
    let page = max.page(PAGE).await;
    assert!(
        page.contains("max@example.com") && !page.contains("Invite</button>"),
        "{page}"
    );
    for (path, fields) in [
        ("invite", &invited[..]),
        ("projects", &[("name", "p")]),
        (
            "budgets",
            &[("part", "organisation:"), ("budget_credits", "5")],
        ),
    ] {
        assert_eq!(max.post(&form(path), fields).await.status, 403, "{path}");
    }
    // A member reads no requests of others, in the console as in the API.
    assert_eq!(max.get("/console/requests").await.status, 403);
    assert_eq!(max.get("/console/money").await.status, 403);
    done(&max.post("/console/keys", &[("name", "laptop")]).await);

    let member = gateway.web_user_id("max").await;
    let budget = [
        ("part", &*format!("member:{member}")),
        ("budget_credits", "5"),
        ("window", "day"),
    ];
    done(&olivia.post(&form("budgets"), &budget).await);
    assert!(olivia.page(PAGE).await.contains("Member max@example.com"));
    let limits = [("regions", "eu, de"), ("max_retention_days", "7")];
    assert_eq!(max.post(&form("data-limits"), &limits).await.status, 403);
    done(&olivia.post(&form("data-limits"), &limits).await);
    for page in [olivia.page(PAGE).await, max.page(PAGE).await] {
        assert!(page.contains("<li>regions eu, de</li>"), "{page}");
        assert!(
            page.contains("<li>at most 7 days of retention</li>"),
            "{page}"
        );
    }
    let wrong = [("regions", "EU"), ("max_retention_days", "")];
    assert_eq!(olivia.post(&form("data-limits"), &wrong).await.status, 400);
    done(&olivia.post(&form("data-limits"), &[]).await);
    assert!(!olivia.page(PAGE).await.contains("regions eu"));
    done(&olivia.post(&form("projects"), &[("name", "Search")]).await);
    assert!(olivia.page(PAGE).await.contains("Search"));
    let page = olivia.page("/console/keys").await;
    assert!(page.contains("laptop"), "{page}");
    // A key can be made for a project of the organisation, and for no other.
    let (_, option) = page.split_once("<option value=\"prj_").expect("a project");
    let project = format!("prj_{}", option.split('"').next().expect("an id"));
    let of_project = |id| [("name", "indexer"), ("project_id", id)];
    let unknown = olivia.post("/console/keys", &of_project("prj_0")).await;
    assert_eq!(unknown.status, 400, "{}", unknown.text());
    assert!(
        unknown.text().contains("no active project"),
        "{}",
        unknown.text()
    );
    done(&olivia.post("/console/keys", &of_project(&project)).await);
    assert!(
        olivia
            .page("/console/keys")
            .await
            .contains("indexer (Search)")
    );
    done(
        &olivia
            .post(
                &form(&format!("members/{member}/role")),
                &[("role", "viewer")],
            )
            .await,
    );
    assert_eq!(max.get("/console/requests").await.status, 200);
    assert_eq!(max.get("/console/keys").await.status, 403);

    done(
        &olivia
            .post(&form(&format!("members/{member}/remove")), &[])
            .await,
    );
    // The session continues with the personal account.
    let page = max.page(PAGE).await;
    assert!(!page.contains("Acme"), "{page}");
    assert_eq!(max.get("/console/money").await.status, 200);
    let organisations = gateway.web("olivia").get("/organisations").await.json();
    let id = text(&organisations["organisations"][0], "organisation_id");
    assert_eq!(
        max.post(&form("switch"), &[("account", &id)]).await.status,
        404
    );
    done(&olivia.post(&form("switch"), &[("account", "")]).await);
    assert!(!olivia.page("/console/keys").await.contains("laptop"));
}
