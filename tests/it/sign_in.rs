//! People sign in to the console at an OpenID Connect issuer: a real one, and a scripted one that misbehaves.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, header};
use serde_json::{Value, json};
use tests::gateway::Builder;
use tests::gateway::USER;
use tests::issuer::{SigningKey, key_set};
use tests::oidc::CONSOLE;
use tests::stores::{Postgres, Redis};
use tests::{Answer, Client, Gateway, OidcServer, Reply, Upstream};
use url::{Url, form_urlencoded};
use weir_identity::sign_in::pending::PendingSignIn;
use weir_storage::clock::{ManualClock, Millis};

use crate::cli::Served;
use crate::console::page;

const PENDING: &str = "weir-console-sign-in";
const SESSION: &str = "weir-console";

/// A browser: it keeps the cookies of each server, and knows whether another site caused a request.
#[derive(Clone, Default)]
pub(crate) struct Tab {
    cookies: BTreeMap<SocketAddr, BTreeMap<String, SavedCookie>>,
    headers: Vec<(&'static str, String)>,
}

#[derive(Clone)]
struct SavedCookie {
    value: String,
    is_strict: bool,
}

/// The page that causes a request.
#[derive(Clone, Copy, PartialEq)]
enum From {
    OwnSite,
    OtherSite,
}

impl Tab {
    async fn get(&mut self, url: &str) -> Answer {
        self.send(url, None, From::OwnSite).await
    }

    async fn post(&mut self, url: &str, fields: &[(&str, &str)]) -> Answer {
        let mut form = form_urlencoded::Serializer::new(String::new());
        let form = form.extend_pairs(fields).finish();
        self.send(url, Some(form), From::OwnSite).await
    }

    async fn send(&mut self, url: &str, form: Option<String>, from: From) -> Answer {
        let url = Url::parse(url).expect("a URL");
        let address = address_of(&url);
        let jar = self.cookies.entry(address).or_default();
        let sent = jar
            .iter()
            .filter(|(_, cookie)| from == From::OwnSite || !cookie.is_strict);
        let sent: Vec<_> = sent
            .map(|(name, cookie)| format!("{name}={}", cookie.value))
            .collect();
        let mut client = Client::new(address)
            .with_header("cookie", &sent.join("; "))
            .with_header(
                "sec-fetch-site",
                match from {
                    From::OwnSite => "same-origin",
                    From::OtherSite => "cross-site",
                },
            );
        for (name, value) in &self.headers {
            client = client.with_header(name, value);
        }
        let path = &url[url::Position::BeforePath..];
        let answer = match form {
            None => client.get(path).await,
            Some(form) => {
                let form_type = Some("application/x-www-form-urlencoded");
                client
                    .send(Method::POST, path, form_type, Bytes::from(form))
                    .await
            }
        };
        for cookie in answer.headers.get_all(header::SET_COOKIE) {
            let cookie = cookie.to_str().expect("ASCII");
            let (name, rest) = cookie.split_once('=').expect("a cookie");
            let value = rest.split(';').next().unwrap_or_default().to_owned();
            let is_strict = cookie.contains("SameSite=Strict");
            let is_over = value.is_empty() || cookie.contains("Max-Age=0");
            match is_over {
                true => drop(jar.remove(name)),
                false => drop(jar.insert(name.to_owned(), SavedCookie { value, is_strict })),
            }
        }
        answer
    }

    /// Presses the button of the first issuer. Returns the issuer's URL.
    async fn begin(&mut self, gateway: &Gateway) -> Url {
        let begun = self
            .get(&at(gateway, "/console/sign-in/oidc/0?next=/console/usage"))
            .await;
        Url::parse(location(&begun)).expect("a URL")
    }

    /// Signs in at the issuer. Returns the URL to which the issuer redirects the browser.
    async fn at_issuer(&mut self, url: &Url, login: &str) -> Url {
        let mut url = url.clone();
        loop {
            let answer = self.get(url.as_str()).await;
            let mut next = url.join(location(&answer)).expect("a URL");
            if next.path() == "/console/sign-in/callback" {
                return next;
            }
            if next.path().starts_with("/interaction/") {
                next.query_pairs_mut().append_pair("login", login);
            }
            url = next;
        }
    }

    /// Opens the page to which an issuer redirects.
    async fn come_back(&mut self, url: &Url) -> Answer {
        self.send(url.as_str(), None, From::OtherSite).await
    }

    pub(crate) async fn sign_in(&mut self, gateway: &Gateway, login: &str) -> Answer {
        let issuer = self.begin(gateway).await;
        let back = self.at_issuer(&issuer, login).await;
        self.come_back(&back).await
    }

    /// A browser of a person who has signed in.
    pub(crate) async fn of(gateway: &Gateway, login: &str) -> Self {
        let mut tab = Self::default();
        let answer = tab.sign_in(gateway, login).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        tab
    }

    /// Whether the console shows the signed-in user's page.
    pub(crate) async fn is_in(&mut self, gateway: &Gateway) -> bool {
        let answer = self.get(&at(gateway, "/console")).await;
        match answer.status.as_u16() {
            200 => true,
            303 => false,
            status => panic!("{status}: {}", answer.text()),
        }
    }

    pub(crate) async fn is_admin(&mut self, gateway: &Gateway) -> bool {
        self.get(&at(gateway, "/console/admin")).await.status == 200
    }

    async fn sign_out(&mut self, gateway: &Gateway) -> Answer {
        let html = self.get(&at(gateway, "/console")).await.text();
        let token = between(&html, "name=\"form_token\" value=\"", "\"");
        let form = [("form_token", &*token)];
        self.post(&at(gateway, "/console/sign-out"), &form).await
    }

    fn has(&self, gateway: &Gateway, cookie: &str) -> bool {
        let jar = self.cookies.get(&gateway.address());
        jar.is_some_and(|jar| jar.contains_key(cookie))
    }

    /// The same browser at another node behind the same host name.
    fn also_at(&mut self, from: &Gateway, to: &Gateway) {
        let jar = self.cookies[&from.address()].clone();
        self.cookies.insert(to.address(), jar);
    }
}

fn address_of(url: &Url) -> SocketAddr {
    let addresses = url.socket_addrs(|| None).expect("an address");
    addresses[0]
}

fn at(gateway: &Gateway, path: &str) -> String {
    format!("http://{}{path}", gateway.address())
}

fn location(answer: &Answer) -> &str {
    assert!(answer.status.is_redirection(), "{}", answer.text());
    answer.headers["location"].to_str().expect("ASCII")
}

fn between(text: &str, start: &str, end: &str) -> String {
    let (_, rest) = text
        .split_once(start)
        .unwrap_or_else(|| panic!("no {start}: {text}"));
    rest.split(end).next().expect("an end").to_owned()
}

fn parameter(url: &Url, name: &str) -> String {
    let mut found = url.query_pairs().filter(|(other, _)| other == name);
    let (_, value) = found.next().unwrap_or_else(|| panic!("no {name} in {url}"));
    value.into_owned()
}

/// The URL with another value of a parameter.
fn with(url: &Url, name: &str, value: &str) -> Url {
    let pairs: Vec<_> = url.query_pairs().into_owned().collect();
    let mut changed = url.clone();
    let mut query = changed.query_pairs_mut();
    query.clear();
    for (other, old) in &pairs {
        let value = if other == name { value } else { old };
        query.append_pair(other, value);
    }
    drop(query);
    changed
}

/// A gateway whose people sign in at a server.
pub(crate) fn signing_in_at(server: &OidcServer, more: &str) -> Builder {
    Gateway::builder().tables(&settings(server, more))
}

fn settings(server: &OidcServer, more: &str) -> String {
    // A gateway reads the file at its start, so it must outlive this function.
    let secret = tempfile::NamedTempFile::new().expect("a file");
    let (_, path) = secret.keep().expect("a kept file");
    std::fs::write(&path, CONSOLE.1).expect("it can be written");
    format!(
        "[[identity.sign_in]]\nname = \"Acme & Co\"\nissuer = {:?}\nclient_id = {:?}\n\
         client_secret = {{ file = {path:?} }}\n{more}\n",
        server.issuer(),
        CONSOLE.0,
    )
}

/// A server with a person, and a gateway whose people sign in there.
pub(crate) async fn started(more: &str) -> (OidcServer, Gateway) {
    let mut server = OidcServer::start();
    let gateway = signing_in_at(&server, more).start().await;
    server.register_console(&[gateway.address()]);
    server.set_account(&account("alice", &[]));
    (server, gateway)
}

pub(crate) fn account(name: &str, groups: &[&str]) -> Value {
    json!({
        "sub": name, "groups": groups, "name": "Alice Liddell", "email": "Alice@Acme.example",
        "email_verified": true,
    })
}

/// The user of a person: id, e-mail address and name.
pub(crate) async fn user(
    gateway: &Gateway,
    issuer: &str,
    name: &str,
) -> (String, Option<String>, Option<String>) {
    sqlx::query_as("SELECT id, email, name FROM users WHERE issuer = $1 AND subject = $2")
        .bind(issuer)
        .bind(name)
        .fetch_one(gateway.app().database.writer())
        .await
        .expect("one user")
}

/// The reasons of failed sign-ins, in the audit.
async fn failures(gateway: &Gateway) -> Vec<String> {
    let admin = gateway.admin("root").await;
    let events = admin.get("/admin/audit?kind=authentication.failed").await;
    let events = events.json();
    let events = events["events"].as_array().expect("a list");
    let of_oidc = events.iter().filter(|event| event["method"] == "oidc");
    let reason = |event: &Value| event["reason"].as_str().expect("a reason").to_owned();
    of_oidc.map(reason).collect()
}

#[tokio::test]
async fn a_person_signs_in_at_a_real_issuer_and_is_one_user() {
    let (mut server, gateway) = started("").await;
    let mut tab = Tab::default();
    let sign_in = tab
        .get(&at(&gateway, "/console/sign-in?next=/console/usage"))
        .await;
    let html = page(&sign_in);
    let button = "href=\"/console/sign-in/oidc/0?next=%2Fconsole%2Fusage\"";
    assert!(
        html.contains(button) && html.contains("Acme &#38; Co"),
        "{html}"
    );
    assert!(!html.contains("from your web app"), "{html}");

    let issuer = tab.begin(&gateway).await;
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", CONSOLE.0),
        ("scope", "openid email profile"),
        ("code_challenge_method", "S256"),
        ("redirect_uri", &at(&gateway, "/console/sign-in/callback")),
    ] {
        assert_eq!(parameter(&issuer, name), value);
    }
    for random in ["state", "nonce", "code_challenge"] {
        assert_eq!(parameter(&issuer, random).len(), 43, "{random}");
    }
    let again = tab.begin(&gateway).await;
    for random in ["state", "nonce", "code_challenge"] {
        assert_ne!(parameter(&issuer, random), parameter(&again, random));
    }
    let back = tab.at_issuer(&again, "alice").await;
    let answer = tab.come_back(&back).await;
    // The page's own next request carries the strict cookie.
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(page(&answer).contains("content=\"0;url=/console/usage\""));
    assert!(tab.has(&gateway, SESSION) && !tab.has(&gateway, PENDING));
    assert!(tab.cookies[&gateway.address()][SESSION].is_strict);
    assert!(tab.is_in(&gateway).await);
    let linked = tab
        .send(&at(&gateway, "/console"), None, From::OtherSite)
        .await;
    assert!(page(&linked).contains("content=\"0;url=/console\""));

    let (id, email, name) = user(&gateway, server.issuer(), "alice").await;
    assert_eq!(email.as_deref(), Some("alice@acme.example"));
    assert_eq!(name.as_deref(), Some("Alice Liddell"));
    let html = tab.get(&at(&gateway, "/console")).await.text();
    assert!(html.contains(&id), "{html}");

    // A later sign-in brings the issuer's changes to the same user.
    let mut account = account("alice", &[]);
    account["email_verified"] = json!(false);
    account["name"] = json!("Alice Hargreaves");
    server.set_account(&account);
    Tab::of(&gateway, "alice").await;
    let later = user(&gateway, server.issuer(), "alice").await;
    assert_eq!(
        later,
        (id.clone(), None, Some("Alice Hargreaves".to_owned()))
    );

    let admin = gateway.admin("root").await;
    let events = admin.get("/admin/audit?kind=console.signed_in").await;
    let text = events.text();
    let events = events.json();
    let event = &events["events"][0];
    assert_eq!(
        (&event["method"], &event["user_id"]),
        (&json!("oidc"), &json!(id))
    );
    assert!(!text.contains(&parameter(&back, "code")), "{text}");
    let path = format!("/admin/audit?kind=user.created&user_id={id}");
    let created = admin.get(&path).await.json();
    let events = created["events"].as_array().expect("a list");
    assert_eq!(events.len(), 1, "{created}");
    let by = format!("issuer:{}", server.issuer());
    assert_eq!(events[0]["actor"], by, "{created}");

    // A disabled user is out, and cannot come in again.
    let path = format!("/admin/users/{id}/disable");
    assert!(admin.post(&path, &json!({})).await.status.is_success());
    assert_eq!(tab.get(&at(&gateway, "/console")).await.status, 403);
    let refused = Tab::default().sign_in(&gateway, "alice").await;
    assert_eq!(refused.status, 403, "{}", refused.text());
}

#[tokio::test]
async fn a_redirect_counts_once_and_only_in_the_browser_that_began() {
    let (_server, gateway) = started("").await;
    let mut tab = Tab::default();
    let refused = async |tab: &mut Tab, back: &Url| {
        let answer = tab.come_back(back).await;
        assert_eq!(answer.status, 401, "{}", answer.text());
        assert!(page(&answer).contains("The sign-in has failed"));
        assert!(!tab.has(&gateway, SESSION) && !tab.has(&gateway, PENDING));
    };
    let mut expected = Vec::new();

    // Another state: the redirect of another browser's sign-in.
    let issuer = tab.begin(&gateway).await;
    let mut mallory = Tab::default();
    let theirs = mallory.begin(&gateway).await;
    let theirs = mallory.at_issuer(&theirs, "mallory").await;
    refused(&mut tab, &theirs).await;
    expected.push("another sign-in");
    refused(
        &mut tab,
        &with(&theirs, "state", &parameter(&issuer, "state")),
    )
    .await;
    expected.push("no sign-in has begun");

    // Their code with the browser's own state: it belongs to another code challenge.
    let issuer = tab.begin(&gateway).await;
    let forged = with(&theirs, "state", &parameter(&issuer, "state"));
    refused(&mut tab, &forged).await;
    expected.push("a code was refused");

    let issuer = tab.begin(&gateway).await;
    let back = tab.at_issuer(&issuer, "alice").await;
    let other = with(&back, "iss", "https://other.example");
    refused(&mut tab, &other).await;
    expected.push("another issuer");

    // The issuer's token has another nonce than the browser's sign-in.
    let issuer = with(&tab.begin(&gateway).await, "nonce", "another");
    let back = tab.at_issuer(&issuer, "alice").await;
    refused(&mut tab, &back).await;
    expected.push("a token was refused");

    let issuer = with(
        &tab.begin(&gateway).await,
        "code_challenge",
        &"x".repeat(43),
    );
    let back = tab.at_issuer(&issuer, "alice").await;
    refused(&mut tab, &back).await;
    expected.push("a code was refused");

    let issuer = with(&tab.begin(&gateway).await, "scope", "none openid");
    let issuer = with(&issuer, "response_type", "none?");
    let denied = tab.get(issuer.as_str()).await;
    let denied = Url::parse(location(&denied)).expect("a URL");
    assert!(!parameter(&denied, "error").is_empty());
    refused(&mut tab, &denied).await;
    expected.push("the issuer refused");

    // A code is used up, even if the browser kept the cookie of its sign-in.
    let issuer = tab.begin(&gateway).await;
    let mut copy = tab.clone();
    let back = tab.at_issuer(&issuer, "alice").await;
    assert_eq!(tab.come_back(&back).await.status, 200);
    refused(&mut copy, &back).await;
    expected.push("a code was refused");

    let mut reasons = failures(&gateway).await;
    reasons.sort();
    expected.sort_unstable();
    expected.dedup();
    reasons.dedup();
    assert_eq!(reasons, expected);
}

#[tokio::test]
async fn a_sign_in_that_takes_too_long_has_ended() {
    let mut server = OidcServer::start();
    let clock = ManualClock::at(Millis::now());
    let gateway = signing_in_at(&server, "").clock(&clock).start().await;
    server.register_console(&[gateway.address()]);
    for (wait_s, status) in [(599, 200), (601, 401)] {
        let mut tab = Tab::default();
        let issuer = tab.begin(&gateway).await;
        let back = tab.at_issuer(&issuer, "alice").await;
        clock.advance(Duration::from_secs(wait_s));
        assert_eq!(tab.come_back(&back).await.status, status, "{wait_s}");
    }
}

/// In production: in development mode, this machine is never locked out.
#[tokio::test]
async fn forged_redirects_and_logout_tokens_lock_their_address_out() {
    let issuer = "https://sso.acme.example";
    let table =
        format!("[[identity.sign_in]]\nname = \"A\"\nissuer = {issuer:?}\nclient_id = \"weir\"\n");
    for by_logout in [false, true] {
        let gateway = Gateway::builder()
            .settings("dev = false")
            .tables(&table)
            .start()
            .await;
        let app = gateway.app();
        let callback = at(
            &gateway,
            "/console/sign-in/callback?code=x&state=forged&iss=x",
        );
        let pending = PendingSignIn::begin(issuer, callback.clone(), "", app.clock.now());
        let cookie = format!("__Host-{PENDING}={}", pending.seal(&app.sealing_keys));
        let browser = gateway.stranger().with_header("cookie", &cookie);
        let path = &callback[callback.find("/console").expect("a path")..];
        let logout = at(&gateway, "/console/sign-in/backchannel-logout");
        for _ in 0..10 {
            let status = match by_logout {
                false => browser.get(path).await.status,
                true => {
                    Tab::default()
                        .post(&logout, &[("logout_token", "a.b.c")])
                        .await
                        .status
                }
            };
            assert_eq!(status, if by_logout { 400 } else { 401 });
        }
        for locked in [
            browser.get(path).await,
            Tab::default().post(&logout, &[("logout_token", "x")]).await,
        ] {
            assert_eq!(locked.status, 429, "{}", locked.text());
            assert!(page(&locked).contains("LOCKED_OUT"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_holds_no_code_token_or_secret() {
    let mut server = OidcServer::start();
    let served = Served::configured(&format!("dev = true\n{}", settings(&server, "")));
    server.register_console(&[served.client().address()]);
    let mut tab = Tab::default();
    let begun = tab
        .get(&format!("{}/console/sign-in/oidc/0", served.url()))
        .await;
    let issuer = Url::parse(location(&begun)).expect("a URL");
    let back = tab.at_issuer(&issuer, "alice").await;
    let copy = tab.clone();
    for (mut tab, status) in [(tab, 200), (copy, 401)] {
        let answer = tab.come_back(&back).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    let (log, _) = served.stop();
    assert!(log.contains("/console/sign-in/callback"), "{log}");
    let secrets = [
        parameter(&back, "code"),
        parameter(&back, "state"),
        parameter(&issuer, "nonce"),
        CONSOLE.1.to_owned(),
        "eyJ".to_owned(),
    ];
    for secret in secrets {
        assert!(!log.contains(&secret), "{secret}: {log}");
    }
}

/// The roles of a user in organisations, each with its source.
async fn memberships(gateway: &Gateway, user_id: &str) -> Vec<(String, String, Option<String>)> {
    sqlx::query_as(
        "SELECT organisation_id, role, granted_by FROM members WHERE user_id = $1 ORDER BY organisation_id",
    )
    .bind(user_id)
    .fetch_all(gateway.app().database.writer())
    .await
    .expect("members")
}

#[tokio::test]
async fn groups_grant_and_revoke_roles_but_none_that_a_person_granted() {
    let roles = "admin_groups = [\"ops\"]\nroles = [\n\
        { group = \"dev\", organisation = \"org_a\", role = \"member\" },\n\
        { group = \"leads\", organisation = \"org_a\", role = \"admin\" },\n\
        { group = \"dev\", organisation = \"org_b\", role = \"viewer\" },\n\
        { group = \"dev\", organisation = \"org_deleted\", role = \"owner\" },\n\
        { group = \"dev\", organisation = \"org_unknown\", role = \"owner\" },\n]";
    for postgres in [None, Some(Postgres::shared().create_database().await)] {
        let mut server = OidcServer::start();
        let builder = signing_in_at(&server, roles);
        let builder = match &postgres {
            None => builder,
            Some(url) => builder.postgres(url),
        };
        let gateway = builder.start().await;
        server.register_console(&[gateway.address()]);
        for (id, deleted_at) in [
            ("org_a", None),
            ("org_b", None),
            ("org_deleted", Some(2_i64)),
        ] {
            sqlx::query(
                "INSERT INTO users (id, created_at, kind, deleted_at) VALUES ($1, 1, 'organisation', $2)",
            )
            .bind(id)
            .bind(deleted_at)
            .execute(gateway.app().database.writer())
            .await
            .expect("an organisation");
            sqlx::query(
                "INSERT INTO members (organisation_id, user_id, role, created_at) VALUES ($1, $2, 'owner', 1)",
            )
            .bind(id)
            .bind(USER)
            .execute(gateway.app().database.writer())
            .await
            .expect("an owner");
        }
        let sign_in = async |server: &mut OidcServer, groups: &[&str]| {
            server.set_account(&account("alice", groups));
            Tab::of(&gateway, "alice").await
        };
        let of_group = |organisation: &str, role: &str| {
            let owned = |text: &str| text.to_owned();
            (owned(organisation), owned(role), Some(owned("group")))
        };

        let mut alice = sign_in(&mut server, &["dev", "other"]).await;
        let (id, ..) = user(&gateway, server.issuer(), "alice").await;
        assert!(!alice.is_admin(&gateway).await);
        let expected = [of_group("org_a", "member"), of_group("org_b", "viewer")];
        assert_eq!(memberships(&gateway, &id).await, expected);

        let mut alice = sign_in(&mut server, &["leads", "dev", "ops"]).await;
        assert!(alice.is_admin(&gateway).await);
        let expected = [of_group("org_a", "admin"), of_group("org_b", "viewer")];
        assert_eq!(memberships(&gateway, &id).await, expected);

        // Without the group, the open session loses the role at once.
        sign_in(&mut server, &["leads"]).await;
        assert!(!alice.is_admin(&gateway).await);
        assert!(alice.is_in(&gateway).await);
        assert_eq!(
            memberships(&gateway, &id).await,
            [of_group("org_a", "admin")]
        );
        let admin = gateway.admin("root").await;
        for kind in ["user.admin_granted", "user.admin_revoked"] {
            let events = admin.get(&format!("/admin/audit?kind={kind}")).await.json();
            let by = format!("issuer:{}", server.issuer());
            let events = events["events"].as_array().expect("a list").clone();
            assert!(
                events.iter().any(|event| event["actor"] == by),
                "{events:?}"
            );
        }

        // An operator's role and a person's invitation stay.
        let path = format!("/admin/users/{id}/grant-admin");
        let granted = admin.post(&path, &json!({})).await;
        assert!(granted.status.is_success(), "{}", granted.text());
        sqlx::query("UPDATE members SET role = 'billing', granted_by = NULL WHERE user_id = $1")
            .bind(&id)
            .execute(gateway.app().database.writer())
            .await
            .expect("an update");
        let invited = [("org_a".to_owned(), "billing".to_owned(), None)];
        for groups in [&["ops", "leads"][..], &[]] {
            let mut alice = sign_in(&mut server, groups).await;
            assert!(alice.is_admin(&gateway).await, "{groups:?}");
            assert_eq!(memberships(&gateway, &id).await, invited, "{groups:?}");
        }

        // An operator's grant to a group's administrator makes the role the operator's.
        server.set_account(&account("bob", &["ops"]));
        Tab::of(&gateway, "bob").await;
        let (bob, ..) = user(&gateway, server.issuer(), "bob").await;
        admin
            .post(&format!("/admin/users/{bob}/grant-admin"), &json!({}))
            .await;
        server.set_account(&account("bob", &[]));
        assert!(Tab::of(&gateway, "bob").await.is_admin(&gateway).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_logout_at_the_issuer_ends_the_session_on_every_node() {
    for redis in [None, Some(Redis::start())] {
        let url = Postgres::shared().create_database().await;
        let mut server = OidcServer::start();
        let on_them = || {
            let builder = signing_in_at(&server, "").postgres(&url);
            match &redis {
                Some(redis) => builder.redis(&redis.url()),
                None => builder,
            }
        };
        let first = on_them().start().await;
        let second = on_them().sharing_secrets_of(&first).start().await;
        // The issuer tells the second node.
        server.register_console(&[second.address(), first.address()]);
        let mut alice = Tab::of(&first, "alice").await;
        let mut elsewhere = Tab::of(&first, "alice").await;
        alice.also_at(&first, &second);
        assert!(alice.is_in(&first).await && alice.is_in(&second).await);
        log_out_at_issuer(&mut alice, &format!("{}/session/end", server.issuer())).await;
        assert!(!alice.is_in(&first).await && !alice.is_in(&second).await);
        assert!(
            elsewhere.is_in(&first).await,
            "another sign-in at the issuer"
        );
        assert_eq!(alice.sign_in(&first, "alice").await.status, 200);
        assert!(alice.is_in(&first).await);
    }
}

/// Confirms a logout on the issuer's page. Returns the address to which it leads.
async fn log_out_at_issuer(tab: &mut Tab, url: &str) -> String {
    let html = tab.get(url).await.text();
    let secret = between(&html, "name=\"xsrf\" value=\"", "\"");
    let action = between(&html, "action=\"", "\"");
    let fields = [("xsrf", &*secret), ("logout", "yes")];
    location(&tab.post(&action, &fields).await).to_owned()
}

#[tokio::test]
async fn a_sign_out_ends_the_session_and_leads_to_the_issuers() {
    let (server, gateway) = started("").await;
    let mut alice = Tab::of(&gateway, "alice").await;
    let copy = alice.clone();
    let answer = alice.sign_out(&gateway).await;
    let html = page(&answer);
    assert!(!alice.has(&gateway, SESSION));
    assert!(!copy.clone().is_in(&gateway).await);
    let url = between(&html, "content=\"0;url=", "\"").replace("&#38;", "&");
    let url = Url::parse(&url).expect("a URL");
    assert_eq!(url.origin().ascii_serialization(), server.issuer());
    assert_eq!(parameter(&url, "client_id"), CONSOLE.0);
    let home = log_out_at_issuer(&mut alice, url.as_str()).await;
    assert_eq!(home, at(&gateway, "/console/sign-in"));
    // The person must sign in at the issuer again.
    let issuer = alice.begin(&gateway).await;
    let answer = alice.get(issuer.as_str()).await;
    assert!(location(&answer).starts_with("/interaction/"));
}

#[tokio::test]
async fn the_sessions_of_a_removed_issuer_are_worthless() {
    let (server, gateway) = started("").await;
    let mut alice = Tab::of(&gateway, "alice").await;
    let other = OidcServer::start();
    for (builder, is_in) in [
        (Gateway::builder(), false),
        (signing_in_at(&other, ""), false),
        (signing_in_at(&server, ""), true),
    ] {
        let url = Postgres::shared().create_database().await;
        let next = builder
            .postgres(&url)
            .sharing_secrets_of(&gateway)
            .start()
            .await;
        alice.also_at(&gateway, &next);
        assert_eq!(alice.is_in(&next).await, is_in);
    }
}

#[tokio::test]
async fn without_its_issuer_a_sign_in_waits_and_the_page_remains() {
    let (server, gateway) = started("").await;
    let issuer = server.issuer().to_owned();
    let mut alice = Tab::of(&gateway, "alice").await;
    drop(server);
    // The node knows the issuer's endpoints, but another node does not.
    let other = Gateway::builder()
        .tables(&format!(
            "[[identity.sign_in]]\nname = \"A\"\nissuer = {issuer:?}\nclient_id = \"c\"\n"
        ))
        .start()
        .await;
    let mut tab = Tab::default();
    let refused = tab.get(&at(&other, "/console/sign-in/oidc/0")).await;
    assert_eq!(refused.status, 503);
    assert!(page(&refused).contains("IDENTITY_UNAVAILABLE"));
    assert!(!tab.has(&other, PENDING));
    for (path, status) in [("oidc/1", 404), ("oidc/x", 400)] {
        let missing = tab
            .get(&at(&other, &format!("/console/sign-in/{path}")))
            .await;
        assert_eq!(missing.status, status, "{path}");
    }
    page(&tab.get(&at(&other, "/console/sign-in")).await);
    assert!(alice.is_in(&gateway).await);
    assert_eq!(alice.sign_out(&gateway).await.status, 200);
    assert!(!alice.is_in(&gateway).await);
}

/// A scripted issuer, whose tokens may have any claims.
pub(crate) struct ScriptedIssuer {
    upstream: Upstream,
    pub(crate) key: SigningKey,
    /// The endpoint's response to a code.
    tokens: Arc<Mutex<Value>>,
}

impl ScriptedIssuer {
    pub(crate) async fn start(metadata: Value) -> Self {
        let upstream = Upstream::start().await;
        let (base, key) = (upstream.base_url(), SigningKey::generate("k", "ES256"));
        let keys = key_set([&key]);
        let tokens = Arc::new(Mutex::new(Value::Null));
        let mut document = json!({
            "issuer": base, "authorization_endpoint": format!("{base}/authorize?tenant=1"),
            "token_endpoint": format!("{base}/token"), "jwks_uri": format!("{base}/keys"),
        });
        for (name, value) in metadata.as_object().into_iter().flatten() {
            document[name] = value.clone();
        }
        let answers = tokens.clone();
        upstream.always_by(move |request| {
            let path = request.path.rsplit('/').next().unwrap_or_default();
            match path {
                "openid-configuration" => Reply::json(200, &document),
                "keys" => Reply::json(200, &keys),
                "token" => Reply::json(200, &answers.lock().expect("no panic")),
                _ => Reply::error(404, "no such page"),
            }
        });
        Self {
            upstream,
            key,
            tokens,
        }
    }

    pub(crate) fn issuer(&self) -> String {
        self.upstream.base_url()
    }

    pub(crate) fn settings(&self, more: &str) -> String {
        format!(
            "[[identity.sign_in]]\nname = \"A\"\nissuer = {:?}\nclient_id = \"weir\"\n{more}\n",
            self.upstream.base_url()
        )
    }

    /// The claims of a token. A null in the changes removes a claim.
    fn claims(&self, changes: &Value) -> Value {
        let now = Millis::now().seconds();
        let mut claims = json!({
            "iss": self.upstream.base_url(), "aud": "weir", "sub": "alice", "iat": now, "exp": now + 300,
        });
        for (name, value) in changes.as_object().into_iter().flatten() {
            claims[name] = value.clone();
        }
        let claims = claims.as_object().expect("claims").clone();
        claims
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .collect()
    }

    /// Signs in with an ID token of these claims, beside the nonce.
    pub(crate) async fn sign_in(
        &self,
        gateway: &Gateway,
        changes: Value,
        key: &SigningKey,
    ) -> (Tab, Answer) {
        let mut tab = Tab::default();
        let url = tab.begin(gateway).await;
        assert_eq!(parameter(&url, "tenant"), "1");
        let mut claims = self.claims(&changes);
        claims["nonce"] = parameter(&url, "nonce").into();
        let token = key.token(&claims);
        *self.tokens.lock().expect("no panic") =
            json!({ "id_token": token, "token_type": "Bearer" });
        let state = parameter(&url, "state");
        let back = at(
            gateway,
            &format!("/console/sign-in/callback?code=the-code&state={state}"),
        );
        let answer = tab.come_back(&Url::parse(&back).expect("a URL")).await;
        (tab, answer)
    }

    pub(crate) async fn log_out(&self, gateway: &Gateway, changes: Value, key: &SigningKey) -> u16 {
        let mut claims = self.claims(&json!({
            "jti": "1", "events": { "http://schemas.openid.net/event/backchannel-logout": {} },
        }));
        for (name, value) in changes.as_object().into_iter().flatten() {
            claims[name] = value.clone();
        }
        let claims = claims.as_object().expect("claims").clone();
        let claims = claims.into_iter().filter(|(_, value)| !value.is_null());
        let token = key.token(&claims.collect());
        let url = at(gateway, "/console/sign-in/backchannel-logout");
        let answer = Tab::default().post(&url, &[("logout_token", &token)]).await;
        answer.status.as_u16()
    }

    fn token_requests(&self) -> Vec<tests::upstream::Request> {
        let mut requests = self.upstream.requests();
        requests.retain(|request| request.path.ends_with("/token"));
        requests
    }
}

#[tokio::test]
async fn id_tokens_that_are_not_for_weir_are_refused() {
    let issuer = ScriptedIssuer::start(json!({})).await;
    let gateway = Gateway::builder()
        .tables(&issuer.settings(""))
        .start()
        .await;
    let now = Millis::now().seconds();
    let (mut tab, answer) = issuer.sign_in(&gateway, json!({}), &issuer.key).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(tab.is_in(&gateway).await);
    for changes in [
        json!({ "aud": "other" }),
        json!({ "aud": ["weir", "other"] }),
        json!({ "azp": "other" }),
        json!({ "iss": "https://other.example" }),
        json!({ "exp": now - 3_600 }),
        json!({ "iat": now + 3_600 }),
        json!({ "iat": null }),
        json!({ "sub": null }),
    ] {
        let (tab, answer) = issuer.sign_in(&gateway, changes.clone(), &issuer.key).await;
        assert_eq!(answer.status, 401, "{changes}: {}", answer.text());
        assert!(!tab.has(&gateway, SESSION), "{changes}");
    }
    for (kid, algorithm) in [("k", "ES256"), ("k", "EdDSA"), ("l", "ES256")] {
        let key = SigningKey::generate(kid, algorithm);
        let (_, answer) = issuer.sign_in(&gateway, json!({}), &key).await;
        assert_eq!(answer.status, 401, "{kid} {algorithm}: {}", answer.text());
    }
}

#[tokio::test]
async fn the_client_authenticates_as_its_issuer_supports_it() {
    let secret = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(secret.path(), CONSOLE.1).expect("it can be written");
    let with_secret = format!("client_secret = {{ file = {:?} }}", secret.path());
    let methods = |list: Value| json!({ "token_endpoint_auth_methods_supported": list });
    for (metadata, more, header, in_form) in [
        (json!({}), &*with_secret, true, false),
        (
            methods(json!(["client_secret_post"])),
            &*with_secret,
            false,
            true,
        ),
        (
            methods(json!(["private_key_jwt", "none"])),
            "",
            false,
            false,
        ),
    ] {
        let issuer = ScriptedIssuer::start(metadata).await;
        let gateway = Gateway::builder()
            .tables(&issuer.settings(more))
            .start()
            .await;
        let (_, answer) = issuer.sign_in(&gateway, json!({}), &issuer.key).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let request = issuer.token_requests().remove(0);
        let encoded: String = form_urlencoded::byte_serialize(CONSOLE.1.as_bytes()).collect();
        let basic = format!("Basic {}", STANDARD.encode(format!("weir:{encoded}")));
        assert_eq!(request.header("authorization") == Some(&*basic), header);
        let form: BTreeMap<_, _> = form_urlencoded::parse(&request.body).into_owned().collect();
        assert_eq!(
            form.get("client_secret")
                .is_some_and(|sent| sent == CONSOLE.1),
            in_form
        );
        assert_eq!(form.contains_key("client_id"), !header);
        assert_eq!(form["grant_type"], "authorization_code");
        assert_eq!(form["code"], "the-code");
        assert_eq!(form["code_verifier"].len(), 43);
        assert_eq!(
            form["redirect_uri"],
            at(&gateway, "/console/sign-in/callback")
        );
    }
    let issuer = ScriptedIssuer::start(methods(json!(["private_key_jwt"]))).await;
    let gateway = Gateway::builder()
        .tables(&issuer.settings(&with_secret))
        .start()
        .await;
    let refused = Tab::default()
        .get(&at(&gateway, "/console/sign-in/oidc/0"))
        .await;
    assert_eq!(refused.status, 503);
}

#[tokio::test]
async fn a_logout_token_ends_what_it_names_and_a_forged_one_nothing() {
    let issuer = ScriptedIssuer::start(json!({})).await;
    let gateway = Gateway::builder()
        .tables(&issuer.settings(""))
        .start()
        .await;
    let now = Millis::now().seconds();
    let begin = async |claims: Value| {
        let (tab, answer) = issuer.sign_in(&gateway, claims, &issuer.key).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        tab
    };
    let mut first = begin(json!({ "sid": "1", "iat": now - 10 })).await;
    let mut second = begin(json!({ "sid": "2", "iat": now - 5 })).await;
    let mut bare = begin(json!({ "iat": now - 5 })).await;
    let mut later = begin(json!({ "sid": "3", "iat": now })).await;
    let mut bob = begin(json!({ "sub": "bob", "iat": now - 10 })).await;

    for changes in [
        json!({ "aud": "other" }),
        json!({ "iss": "https://other.example" }),
        json!({ "nonce": "n" }),
        json!({ "events": null }),
        json!({ "events": { "http://schemas.openid.net/event/other": {} } }),
        json!({ "sub": null }),
        json!({ "jti": null }),
        json!({ "iat": null }),
        json!({ "exp": null }),
        json!({ "exp": now - 3_600 }),
    ] {
        assert_eq!(
            issuer.log_out(&gateway, changes.clone(), &issuer.key).await,
            400,
            "{changes}"
        );
    }
    let forger = SigningKey::generate("k", "ES256");
    assert_eq!(issuer.log_out(&gateway, json!({}), &forger).await, 400);
    let url = at(&gateway, "/console/sign-in/backchannel-logout");
    for fields in [
        &[][..],
        &[("logout_token", "x")],
        &[("logout_token", "a.b.c")],
    ] {
        assert_eq!(Tab::default().post(&url, fields).await.status, 400);
    }
    for tab in [&mut first, &mut second, &mut bare, &mut later, &mut bob] {
        assert!(tab.is_in(&gateway).await);
    }

    let one = json!({ "sid": "1", "iat": now - 3 });
    assert_eq!(issuer.log_out(&gateway, one, &issuer.key).await, 200);
    assert!(!first.is_in(&gateway).await && second.is_in(&gateway).await);
    let all = json!({ "iat": now - 3 });
    for _ in 0..2 {
        assert_eq!(
            issuer.log_out(&gateway, all.clone(), &issuer.key).await,
            200
        );
        assert!(!second.is_in(&gateway).await && !bare.is_in(&gateway).await);
        assert!(later.is_in(&gateway).await, "it began after the logout");
    }
    // An older logout, delivered late, does not revive what a newer one ended.
    let older = json!({ "iat": now - 8 });
    assert_eq!(issuer.log_out(&gateway, older, &issuer.key).await, 200);
    assert!(!second.is_in(&gateway).await);
    assert!(bob.is_in(&gateway).await);
    // The issuer signs the person in again at once, and a token from before the logout begins nothing.
    let (_, answer) = issuer
        .sign_in(&gateway, json!({ "iat": now - 4 }), &issuer.key)
        .await;
    assert_eq!(answer.status, 401);
}
