//! Directories provision users and groups by SCIM 2.0. An independent client checks the standard, and people sign in at a
//! real issuer.

use http::Method;
use serde_json::{Value, json};
use tests::gateway::USER;
use tests::stores::{Postgres, Redis};
use tests::{Answer, Client, Gateway, OidcServer};
use weir_identity::store::{self, KeyCreation, KeyOwner};

use crate::sdk;
use crate::sign_in::{ScriptedIssuer, Tab, account, signing_in_at, started, user};

pub(crate) const TOKEN: &str = "directory-token-0123456789abcdefghij";

/// A setting with a token. The gateway reads the file at its start, so it must outlive this function.
pub(crate) fn scim_token(token: &str) -> String {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let (_, path) = file.keep().expect("a kept file");
    std::fs::write(&path, token).expect("it can be written");
    format!("scim_token = {{ file = {path:?} }}\n")
}

/// A client of a directory.
pub(crate) struct Directory(Client);

impl Directory {
    pub(crate) fn of(gateway: &Gateway) -> Self {
        Self::with_token(gateway, TOKEN)
    }

    fn with_token(gateway: &Gateway, token: &str) -> Self {
        Self(gateway.stranger().with_key(token))
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Answer {
        let scim = Some("application/scim+json");
        let body = body.to_string().into();
        let path = format!("/scim/v2{path}");
        self.0.send(method, &path, scim, body).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.0.get(&format!("/scim/v2{path}")).await
    }

    /// Creates a resource. Returns its id.
    async fn create(&self, path: &str, body: &Value) -> String {
        let created = self.send(Method::POST, path, body).await;
        assert_eq!(created.status, 201, "{}", created.text());
        let id = created.json()["id"].as_str().expect("an id").to_owned();
        let location = created.headers["location"].to_str().expect("ASCII");
        assert!(location.ends_with(&format!("{path}/{id}")), "{location}");
        id
    }

    pub(crate) async fn create_user(&self, name: &str, external_id: &str) -> String {
        let user = json!({ "userName": name, "externalId": external_id });
        self.create("/Users", &user).await
    }

    pub(crate) async fn create_group(&self, name: &str, members: &[&str]) -> String {
        let members = members.iter().map(|id| json!({ "value": id }));
        let members: Vec<_> = members.collect();
        let group = json!({ "displayName": name, "members": members });
        self.create("/Groups", &group).await
    }

    /// Sends one operation of a patch.
    async fn patch(&self, path: &str, operation: Value) -> Answer {
        let body = json!({
            "schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"], "Operations": [operation],
        });
        self.send(Method::PATCH, path, &body).await
    }

    pub(crate) async fn set_active(&self, id: &str, active: Value) {
        let operation = json!({ "op": "replace", "path": "active", "value": active });
        let patched = self.patch(&format!("/Users/{id}"), operation).await;
        assert_eq!(patched.status, 200, "{}", patched.text());
    }

    async fn delete(&self, path: &str) {
        let deleted = self.send(Method::DELETE, path, &Value::Null).await;
        assert_eq!(deleted.status, 204, "{}", deleted.text());
    }
}

/// Checks that a response is an error of the protocol.
fn is_error(answer: &Answer, status: u16, keyword: Option<&str>) {
    let body = answer.json();
    assert_eq!(answer.status, status, "{body}");
    assert_eq!(answer.headers["content-type"], "application/scim+json");
    assert_eq!(
        body["schemas"],
        json!(["urn:ietf:params:scim:api:messages:2.0:Error"])
    );
    assert_eq!(body["status"], status.to_string());
    assert_eq!(body["scimType"].as_str(), keyword, "{body}");
    assert!(!body["detail"].as_str().expect("a text").is_empty());
}

async fn with_directory(more: &str) -> (OidcServer, Gateway, Directory) {
    let (server, gateway) = started(&format!("{}{more}", scim_token(TOKEN))).await;
    let directory = Directory::of(&gateway);
    (server, gateway, directory)
}

/// Runs a test with a gateway with a directory, on SQLite and on PostgreSQL.
async fn on_each_database(test: impl AsyncFn(Gateway)) {
    let issuer = ScriptedIssuer::start(json!({})).await;
    let settings = issuer.settings(&scim_token(TOKEN));
    for postgres in [None, Some(Postgres::shared().create_database().await)] {
        let builder = Gateway::builder().tables(&settings);
        let builder = match &postgres {
            None => builder,
            Some(url) => builder.postgres(url),
        };
        test(builder.start().await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_independent_client_finds_nothing_against_the_standard() {
    on_each_database(async |gateway| {
        let url = format!("http://{}/scim/v2", gateway.address());
        sdk::run("scim_directory.py", &[&url, TOKEN]).await;
    })
    .await;
}

#[tokio::test]
async fn the_person_who_signs_in_is_the_directorys_user_with_its_groups() {
    let (mut server, gateway, directory) = with_directory("admin_groups = [\"platform\"]").await;
    // The groups of the token do not count.
    server.set_account(&account("alice", &["platform"]));
    let alice = json!({
        "userName": "alice@acme.example", "externalId": "alice", "name": { "givenName": "Alice", "familyName": "Ames" },
        "emails": [{ "value": "other@acme.example", "primary": true }],
    });
    let id = directory.create("/Users", &alice).await;
    let provisioned = user(&gateway, server.issuer(), "alice").await;
    // Only a token verifies an e-mail address.
    assert_eq!(
        provisioned,
        (id.clone(), None, Some("Alice Ames".to_owned()))
    );

    let mut tab = Tab::of(&gateway, "alice").await;
    let (signed_in, email, _) = user(&gateway, server.issuer(), "alice").await;
    assert_eq!(
        (signed_in, email.as_deref()),
        (id.clone(), Some("alice@acme.example"))
    );
    assert!(!tab.is_admin(&gateway).await);

    // Roles follow the groups at once, without a sign-in.
    let group = directory.create_group("platform", &[&id]).await;
    assert!(tab.is_admin(&gateway).await);
    let shown = directory.get(&format!("/Users/{id}")).await.json();
    assert_eq!(
        shown["groups"],
        json!([{ "value": group, "display": "platform" }])
    );
    let path = format!("/Groups/{group}");
    let selected = format!("members[value eq \"{id}\"]");
    let removed = directory
        .patch(&path, json!({ "op": "remove", "path": selected }))
        .await;
    assert_eq!(removed.status, 200, "{}", removed.text());
    assert!(!tab.is_admin(&gateway).await);
    // Entra's form of an addition, and of a removal.
    let member = json!([{ "value": id }]);
    for (op, is_admin) in [("Add", true), ("Remove", false), ("Add", true)] {
        let operation = json!({ "op": op, "path": "members", "value": member });
        let patched = directory.patch(&path, operation).await;
        assert_eq!(patched.status, 200, "{}", patched.text());
        assert_eq!(tab.is_admin(&gateway).await, is_admin, "{op}");
    }
    Tab::of(&gateway, "alice").await;
    assert!(tab.is_admin(&gateway).await);
    let renamed = json!({ "op": "replace", "value": { "id": group, "displayName": "others" } });
    assert_eq!(directory.patch(&path, renamed).await.status, 200);
    assert!(!tab.is_admin(&gateway).await);
    let renamed = json!({ "op": "replace", "path": "displayName", "value": "platform" });
    assert_eq!(directory.patch(&path, renamed).await.status, 200);
    assert!(tab.is_admin(&gateway).await);
    directory.delete(&path).await;
    assert!(!tab.is_admin(&gateway).await);
    is_error(&directory.get(&path).await, 404, None);
}

#[tokio::test]
async fn a_directory_disables_users_at_once_and_enables_nobody_whom_an_operator_disabled() {
    let (server, gateway, directory) = with_directory("").await;
    let id = directory.create_user("alice", "alice").await;
    let mut tab = Tab::of(&gateway, "alice").await;
    for active in [json!(false), json!("False")] {
        assert!(tab.is_in(&gateway).await);
        directory.set_active(&id, active.clone()).await;
        let refused = Tab::default().sign_in(&gateway, "alice").await;
        assert_eq!(refused.status, 403, "{active}: {}", refused.text());
        directory.set_active(&id, json!(true)).await;
    }

    // A replacement without the attribute enables nobody.
    directory.set_active(&id, json!(false)).await;
    let alice = json!({ "userName": "Alice2", "externalId": "alice" });
    let path = format!("/Users/{id}");
    let replaced = directory.send(Method::PUT, &path, &alice).await.json();
    assert_eq!(
        (&replaced["active"], &replaced["userName"]),
        (&json!(false), &json!("Alice2"))
    );
    assert_eq!(Tab::default().sign_in(&gateway, "alice").await.status, 403);

    // An operator's decision stands, in either order.
    let admin = gateway.admin("root").await;
    let operator = async |act: &str| {
        let path = format!("/admin/users/{id}/{act}");
        assert!(admin.post(&path, &json!({})).await.status.is_success());
    };
    operator("disable").await;
    directory.set_active(&id, json!(true)).await;
    assert_eq!(Tab::default().sign_in(&gateway, "alice").await.status, 403);
    operator("enable").await;
    Tab::of(&gateway, "alice").await;
    operator("disable").await;
    directory.set_active(&id, json!(false)).await;
    directory.set_active(&id, json!(true)).await;
    assert_eq!(Tab::default().sign_in(&gateway, "alice").await.status, 403);
    operator("enable").await;

    // A deleted user is disabled, and comes back as the same user.
    directory.delete(&path).await;
    is_error(&directory.get(&path).await, 404, None);
    assert_eq!(Tab::default().sign_in(&gateway, "alice").await.status, 403);
    assert_eq!(directory.create_user("alice", "alice").await, id);
    Tab::of(&gateway, "alice").await;

    let events = admin.get("/admin/audit?kind=user.disabled").await.json();
    let actor = format!("issuer:{}", server.issuer());
    let events = events["events"].as_array().expect("a list").iter();
    let by_directory = events.filter(|event| event["actor"] == *actor);
    let counts = by_directory.filter_map(|event| event["count"].as_i64());
    assert_eq!(counts.sum::<i64>(), 4);
    let path = format!("/admin/audit?kind=user.created&user_id={id}");
    let created = admin.get(&path).await.json();
    let events = created["events"].as_array().expect("a list");
    assert_eq!(events.len(), 1, "{created}");
    assert_eq!(events[0]["actor"], *actor, "{created}");
}

#[tokio::test]
async fn keys_end_with_the_directorys_user_and_groups_on_all_nodes_at_once() {
    let (url, redis) = (Postgres::shared().create_database().await, Redis::start());
    let server = OidcServer::start();
    let roles = "roles = [{ group = \"dev\", organisation = \"org_a\", role = \"member\" }]";
    let settings = format!("{}{roles}", scim_token(TOKEN));
    let node = || {
        signing_in_at(&server, &settings)
            .postgres(&url)
            .redis(&redis.url())
    };
    let first = node().start().await;
    let second = node().sharing_secrets_of(&first).start().await;
    let database = &first.app().database;
    for sql in [
        "INSERT INTO users (id, created_at, kind) VALUES ('org_a', 1, 'organisation')".to_owned(),
        format!(
            "INSERT INTO members (organisation_id, user_id, role, created_at) VALUES ('org_a', '{USER}', 'owner', 1)"
        ),
    ] {
        let run = sqlx::query(sqlx::AssertSqlSafe(sql))
            .execute(database.writer())
            .await;
        run.expect("a row");
    }
    let directory = Directory::of(&first);
    let other = Directory::of(&second);
    let id = directory.create_user("alice", "alice").await;
    let group = other.create_group("dev", &[&id]).await;
    let statuses = async |key: &str| {
        let mut statuses = Vec::new();
        for node in [&first, &second] {
            let answer = node.stranger().with_key(key).get("/models").await;
            statuses.push(answer.status.as_u16());
        }
        statuses
    };
    let key = async |owner: KeyOwner<'_>| {
        let app = first.app();
        let (peppers, now) = (&app.identity.key_peppers, app.clock.now());
        let made = store::create_limited_key(&app.database, peppers, owner, "a key", now);
        let KeyCreation::Made(key) = made.await.expect("an answer") else {
            panic!("too many keys");
        };
        let key = key.expose().to_owned();
        assert_eq!(statuses(&key).await, [200, 200]);
        key
    };
    let personal = key(KeyOwner::personal(&id)).await;
    let in_organisation = KeyOwner {
        account_id: "org_a",
        holder_id: Some(&id),
        project_id: None,
    };
    let of_member = key(in_organisation).await;
    let removal = json!({ "op": "remove", "path": "members", "value": [{ "value": id }] });
    let removed = other.patch(&format!("/Groups/{group}"), removal).await;
    assert_eq!(removed.status, 200, "{}", removed.text());
    assert_eq!(statuses(&of_member).await, [401, 401]);
    assert_eq!(statuses(&personal).await, [200, 200]);
    directory.set_active(&id, json!(false)).await;
    assert_eq!(statuses(&personal).await, [403, 403]);
    other.set_active(&id, json!(true)).await;
    assert_eq!(statuses(&personal).await, [200, 200]);
    other.delete(&format!("/Users/{id}")).await;
    assert_eq!(statuses(&personal).await, [403, 403]);
}

#[tokio::test]
async fn groups_never_take_the_last_enabled_owner() {
    let issuer = ScriptedIssuer::start(json!({})).await;
    let roles = "roles = [{ group = \"bosses\", organisation = \"org_a\", role = \"owner\" }]";
    let settings = issuer.settings(&format!("{}{roles}", scim_token(TOKEN)));
    for postgres in [None, Some(Postgres::shared().create_database().await)] {
        let builder = Gateway::builder().tables(&settings);
        let builder = match &postgres {
            None => builder,
            Some(url) => builder.postgres(url),
        };
        let gateway = builder.start().await;
        let database = &gateway.app().database;
        let organisation =
            "INSERT INTO users (id, created_at, kind) VALUES ('org_a', 1, 'organisation')";
        let made = sqlx::query(organisation).execute(database.writer()).await;
        made.expect("a row");
        let directory = Directory::of(&gateway);
        let ann = directory.create_user("ann", "ann").await;
        let bob = directory.create_user("bob", "bob").await;
        let group = directory.create_group("bosses", &[&ann, &bob]).await;
        let owners = async || {
            let owners: Vec<String> = sqlx::query_scalar(
                "SELECT user_id FROM members WHERE role = 'owner' ORDER BY created_at, user_id",
            )
            .fetch_all(database.reader())
            .await
            .expect("an answer");
            owners
        };
        assert_eq!(owners().await.len(), 2);
        // A directory may disable an owner; the other one is then the last.
        directory.set_active(&bob, json!(false)).await;
        let remove = async |id: &str| {
            let removal = json!({ "op": "remove", "path": "members", "value": [{ "value": id }] });
            let removed = directory.patch(&format!("/Groups/{group}"), removal).await;
            assert_eq!(removed.status, 200, "{}", removed.text());
        };
        remove(&ann).await;
        assert!(owners().await.contains(&ann), "the last enabled owner");
        remove(&bob).await;
        assert_eq!(owners().await, std::slice::from_ref(&ann));
        // Without an enabled owner, the group names a new one.
        directory.set_active(&ann, json!(false)).await;
        let eve = directory.create_user("eve", "eve").await;
        let added = json!({ "op": "add", "path": "members", "value": [{ "value": eve }] });
        let added = directory.patch(&format!("/Groups/{group}"), added).await;
        assert_eq!(added.status, 200, "{}", added.text());
        assert!(owners().await.contains(&eve));
    }
}

/// All endpoints, with an id in each place.
const ENDPOINTS: [(Method, &str); 16] = [
    (Method::GET, "/ServiceProviderConfig"),
    (Method::GET, "/ResourceTypes"),
    (Method::GET, "/ResourceTypes/User"),
    (Method::GET, "/Schemas"),
    (
        Method::GET,
        "/Schemas/urn:ietf:params:scim:schemas:core:2.0:User",
    ),
    (Method::GET, "/Users"),
    (Method::POST, "/Users"),
    (Method::GET, "/Users/x"),
    (Method::PUT, "/Users/x"),
    (Method::PATCH, "/Users/x"),
    (Method::DELETE, "/Users/x"),
    (Method::GET, "/Groups"),
    (Method::POST, "/Groups"),
    (Method::PATCH, "/Groups/x"),
    (Method::DELETE, "/Groups/x"),
    (Method::GET, "/other"),
];

#[tokio::test]
async fn only_the_directorys_token_is_accepted_and_wrong_ones_lock_their_address_out() {
    let (_server, gateway, directory) = with_directory("").await;
    let admin = gateway.admin("root").await;
    let key = gateway.client();
    let web = gateway.web("alice");
    for (name, client) in [
        ("admin", admin),
        ("key", key),
        ("web", web),
        ("stranger", gateway.stranger()),
    ] {
        for (method, path) in ENDPOINTS {
            let answer = Directory(client.clone())
                .send(method.clone(), path, &json!({}))
                .await;
            is_error(&answer, 401, None);
            assert_eq!(
                answer.headers["www-authenticate"], "Bearer",
                "{name}: {method} {path}"
            );
        }
    }
    // The token opens nothing else.
    let other = directory.0.get("/usage/me").await;
    assert_eq!(other.status, 401);

    // Outside development mode, ten wrong tokens lock the address out.
    let issuer = ScriptedIssuer::start(json!({})).await;
    let settings = issuer.settings(&scim_token(TOKEN));
    let settings = settings.replace(&issuer.issuer(), "https://sso.example.com");
    let production = Gateway::builder()
        .settings("dev = false\ntrusted_proxies = []\n")
        .tables(&settings)
        .start()
        .await;
    let wrong = Directory::with_token(&production, &TOKEN.replace('0', "1"));
    for _ in 0..10 {
        is_error(&wrong.get("/Users").await, 401, None);
    }
    is_error(&wrong.get("/Users").await, 429, None);
    is_error(&Directory::of(&production).get("/Users").await, 429, None);
}

#[tokio::test]
async fn a_directory_reaches_only_its_own_users_and_groups() {
    let (acme, beta) = (
        ScriptedIssuer::start(json!({})).await,
        ScriptedIssuer::start(json!({})).await,
    );
    let beta_token = TOKEN.replace('0', "1");
    let settings = format!(
        "{}{}",
        acme.settings(&scim_token(TOKEN)),
        beta.settings(&scim_token(&beta_token))
            .replace("\"A\"", "\"B\"")
    );
    let gateway = Gateway::builder().tables(&settings).start().await;
    let (acme, beta) = (
        Directory::of(&gateway),
        Directory::with_token(&gateway, &beta_token),
    );
    let id = acme.create_user("alice", "alice").await;
    let group = acme.create_group("dev", &[&id]).await;
    // The same names are other people there.
    let theirs = beta.create_user("alice", "alice").await;
    assert_ne!(id, theirs);
    for path in [
        format!("/Users/{id}"),
        format!("/Groups/{group}"),
        format!("/Users/{USER}"),
    ] {
        let kept = json!({ "userName": "eve", "displayName": "eve" });
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            is_error(&beta.send(method, &path, &kept).await, 404, None);
        }
        let operation = json!({ "op": "replace", "path": "displayName", "value": "eve" });
        is_error(&beta.patch(&path, operation).await, 404, None);
    }
    let group = json!({ "displayName": "dev", "members": [{ "value": id }] });
    let refused = beta.send(Method::POST, "/Groups", &group).await;
    is_error(&refused, 400, Some("invalidValue"));
    let listed = beta.get("/Users").await.json();
    assert_eq!(
        (&listed["totalResults"], &listed["Resources"][0]["id"]),
        (&json!(1), &json!(theirs))
    );
    assert_eq!(beta.get("/Groups").await.json()["totalResults"], 0);
    assert_eq!(acme.get("/Groups").await.json()["totalResults"], 1);

    // Two directories with one token could not be told apart.
    let issuers = [
        ScriptedIssuer::start(json!({})).await,
        ScriptedIssuer::start(json!({})).await,
    ];
    let tables = issuers.iter().enumerate().map(|(index, issuer)| {
        let settings = issuer.settings(&scim_token(TOKEN));
        settings.replace("\"A\"", &format!("\"{index}\""))
    });
    let refused = Gateway::builder()
        .tables(&tables.collect::<String>())
        .try_start()
        .await;
    let problem = format!("{:#}", refused.err().expect("a problem"));
    assert!(problem.contains("scim_token"), "{problem}");
}

#[tokio::test]
async fn what_is_invalid_is_refused_by_name_and_changes_nothing() {
    on_each_database(async |gateway| {
        let directory = Directory::of(&gateway);
        let id = directory.create_user("Alice", "alice").await;
        let bob = directory.create_user("bob", "bob").await;
        let group = directory.create_group("dev", &[&id]).await;
        let path = format!("/Users/{id}");
        let group_path = format!("/Groups/{group}");
        let state = async || {
            let groups = directory.get("/Groups").await.json();
            (directory.get("/Users").await.json(), groups)
        };
        let before = state().await;
        for (method, path, body, status, keyword) in [
            (Method::POST, "/Users", json!({}), 400, "invalidValue"),
            (Method::POST, "/Users", json!({ "userName": " " }), 400, "invalidValue"),
            (Method::POST, "/Users", json!({ "userName": "x\ny" }), 400, "invalidValue"),
            (Method::POST, "/Users", json!({ "userName": "ALICE" }), 409, "uniqueness"),
            (Method::POST, "/Users", json!({ "userName": "c", "externalId": "bob" }), 409, "uniqueness"),
            (Method::POST, "/Users", json!({ "userName": "c", "active": "perhaps" }), 400, "invalidValue"),
            (Method::POST, "/Users", json!({ "userName": "c", "emails": ["c@d.e"] }), 400, "invalidValue"),
            (Method::POST, "/Users", json!([]), 400, "invalidSyntax"),
            (Method::PUT, &path, json!({ "userName": "Bob" }), 409, "uniqueness"),
            (Method::PUT, &path, json!({ "userName": "c", "externalId": "bob" }), 409, "uniqueness"),
            (Method::PATCH, &path, json!({}), 400, "invalidSyntax"),
            (Method::POST, "/Groups", json!({ "displayName": "x", "members": [{ "value": "y" }] }), 400, "invalidValue"),
            (Method::PUT, &group_path, json!({ "displayName": "x", "members": [{ "value": group }] }), 400, "invalidValue"),
            (Method::PUT, &group_path, json!({ "members": [] }), 400, "invalidValue"),
        ] {
            let answer = directory.send(method, path, &body).await;
            is_error(&answer, status, Some(keyword));
        }
        // The last operation fails, so none counts.
        let body = json!({ "Operations": [
            { "op": "replace", "path": "active", "value": false }, { "op": "remove", "path": "userName" },
        ] });
        let answer = directory.send(Method::PATCH, &path, &body).await;
        is_error(&answer, 400, Some("mutability"));
        let long = json!({ "userName": "x".repeat(1 << 20) });
        is_error(&directory.send(Method::POST, "/Users", &long).await, 413, None);
        for (path, keyword) in [
            ("/Users?filter=userName%20sw%20%22a%22", "invalidFilter"),
            ("/Users?filter=nonsense", "invalidFilter"),
            ("/Users?startIndex=x", "invalidValue"),
        ] {
            is_error(&directory.get(path).await, 400, Some(keyword));
        }
        is_error(&directory.get("/other").await, 404, None);
        is_error(&directory.get("/Schemas/other").await, 404, None);
        is_error(&directory.send(Method::PUT, "/Users", &json!({})).await, 405, None);
        assert_eq!(state().await, before);

        // Directories find users by name in any case, and page through them.
        let found = directory.get("/Users?filter=userName%20eq%20%22aLICE%22").await.json();
        assert_eq!(found["Resources"][0]["id"], id);
        let second = directory.get("/Users?startIndex=2&count=1").await.json();
        assert_eq!((&second["totalResults"], &second["Resources"][0]["id"]), (&json!(2), &json!(bob)));
        let without = directory.get(&format!("{group_path}?excludedAttributes=members")).await.json();
        assert!(without["members"].is_null() && without["displayName"] == "dev");
    })
    .await;
}

#[tokio::test]
async fn another_claim_can_name_the_user_and_logouts_still_find_the_session() {
    let issuer = ScriptedIssuer::start(json!({})).await;
    let settings = issuer.settings(&format!("subject_claim = \"oid\"\n{}", scim_token(TOKEN)));
    let gateway = Gateway::builder().tables(&settings).start().await;
    let id = Directory::of(&gateway)
        .create_user("alice", "object-7")
        .await;
    let claims = json!({ "sub": "pairwise-1", "oid": "object-7" });
    let (mut tab, answer) = issuer.sign_in(&gateway, claims, &issuer.key).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(user(&gateway, &issuer.issuer(), "object-7").await.0, id);
    assert!(tab.is_in(&gateway).await);
    // A logout token names the person by `sub`.
    let logout = json!({ "sub": "pairwise-1" });
    assert_eq!(issuer.log_out(&gateway, logout, &issuer.key).await, 200);
    assert!(!tab.is_in(&gateway).await);
    for claims in [
        json!({ "sub": "a" }),
        json!({ "sub": "a", "oid": "" }),
        json!({ "sub": "a", "oid": 7 }),
    ] {
        let (_, refused) = issuer.sign_in(&gateway, claims.clone(), &issuer.key).await;
        assert_eq!(refused.status, 401, "{claims}");
    }
}

#[tokio::test]
async fn a_directorys_user_is_exported_and_erased_with_its_record() {
    let (_server, gateway, directory) = with_directory("").await;
    let id = directory.create_user("alice-canary", "alice").await;
    directory.create_group("dev", &[&id]).await;
    let admin = gateway.admin("root").await;
    let export = admin.get(&format!("/admin/users/{id}/export")).await.json();
    assert_eq!(
        export["directory"][0]["attributes"]["userName"],
        "alice-canary"
    );
    let path = format!("/admin/users/{id}");
    let body = json!({ "confirm": id }).to_string().into();
    let json = Some("application/json");
    let erased = admin.send(Method::DELETE, &path, json, body).await;
    assert_eq!(erased.status, 200, "{}", erased.text());
    is_error(&directory.get(&format!("/Users/{id}")).await, 404, None);
    let group = directory.get("/Groups").await.json();
    assert!(group["Resources"][0]["members"].is_null(), "{group}");
    // The directory's next user with this name is another person.
    assert_ne!(directory.create_user("alice-canary", "alice").await, id);
}
