//! The console: access, the policy of its pages, and the effect of its actions.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, header};
use serde_json::json;
use tests::api::endpoints;
use tests::issuer::{SigningKey, key_set};
use tests::stores::{Postgres, Redis};
use tests::{Answer, Client, Gateway, Reply, Upstream};
use url::form_urlencoded;
use weir_identity::endpoints::Access;

use crate::cli::Served;

/// A browser: it keeps cookies, and sends the origin of its forms.
pub(crate) struct Browser {
    client: Client,
    origin: String,
    cookies: BTreeMap<String, String>,
}

impl Browser {
    pub(crate) fn new(gateway: &Gateway) -> Self {
        Self::with(gateway.stranger())
    }

    fn with(client: Client) -> Self {
        Self {
            origin: format!("http://{}", client.address()),
            client,
            cookies: BTreeMap::new(),
        }
    }

    /// A browser of a web user who has signed in by their tokens.
    pub(crate) async fn of(gateway: &Gateway, user: &str) -> Self {
        let mut browser = Self::new(gateway);
        let answer = browser.sign_in(gateway, user).await;
        assert_eq!(answer.status, 303, "{}", answer.text());
        browser
    }

    async fn sign_in(&mut self, gateway: &Gateway, user: &str) -> Answer {
        let now = gateway.app().clock.now();
        let tokens = gateway.issuer().web_tokens(user, now);
        let tokens = tokens.expect("tokens can be minted");
        let fields = [
            ("identity_token", tokens.identity.expose()),
            ("attestation_token", tokens.attestation.expose()),
        ];
        self.post_bare("/console/sign-in", &fields).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.ask(Method::GET, path, None).await
    }

    /// Loads a page, which must exist and have the pages' policy.
    pub(crate) async fn page(&mut self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        page(&answer)
    }

    /// Sends a form of a page, with the page's token.
    pub(crate) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let token = self.form_token().await;
        let mut fields = fields.to_vec();
        fields.push(("form_token", &token));
        self.post_bare(path, &fields).await
    }

    /// Returns a client for a script of a page, which sends the session's cookies and the page's token.
    pub(crate) async fn script(&mut self, origin: Option<&str>) -> Client {
        let token = self.form_token().await;
        let cookies = self.cookies.iter();
        let cookies: Vec<_> = cookies
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        self.client
            .clone()
            .with_header("cookie", &cookies.join("; "))
            .with_header("origin", origin.unwrap_or(&self.origin))
            .with_header("x-form-token", &token)
    }

    pub(crate) async fn form_token(&mut self) -> String {
        let html = self.page("/console").await;
        let (_, rest) = html
            .split_once("name=\"form_token\" value=\"")
            .expect("a form");
        rest.split('"').next().expect("a token").to_owned()
    }

    pub(crate) async fn post_bare(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let body = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        self.ask(Method::POST, path, Some(body)).await
    }

    async fn ask(&mut self, method: Method, path: &str, form: Option<String>) -> Answer {
        let mut client = self.client.clone();
        let cookies: Vec<_> = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if !cookies.is_empty() {
            client = client.with_header("cookie", &cookies.join("; "));
        }
        if form.is_some() {
            client = client.with_header("origin", &self.origin);
        }
        let content_type = form.as_ref().map(|_| "application/x-www-form-urlencoded");
        let body = form.map_or(Bytes::new(), Bytes::from);
        let answer = client.send(method, path, content_type, body).await;
        for cookie in answer.headers.get_all(header::SET_COOKIE) {
            let cookie = cookie.to_str().expect("ASCII");
            let (name, rest) = cookie.split_once('=').expect("a cookie");
            let value = rest.split(';').next().unwrap_or_default();
            match cookie.contains("Max-Age=0;") {
                true => self.cookies.remove(name),
                false => self.cookies.insert(name.to_owned(), value.to_owned()),
            };
        }
        answer
    }
}

/// Checks the requirements on every page, and returns its text.
pub(crate) fn page(answer: &Answer) -> String {
    let headers = &answer.headers;
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(headers["cache-control"], "no-store");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["referrer-policy"], "same-origin");
    let policy = headers["content-security-policy"].to_str().expect("ASCII");
    for part in [
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    let html = answer.text();
    // Constructs that the policy would block.
    for inline in ["<style", " style=", "<script>", " onclick=", "javascript:"] {
        assert!(!html.contains(inline), "{inline} in {html}");
    }
    html
}

pub(crate) fn location(answer: &Answer) -> &str {
    assert_eq!(answer.status, 303, "{}", answer.text());
    answer.headers["location"].to_str().expect("ASCII")
}

fn code_of(answer: &Answer) -> String {
    let html = page(answer);
    let (_, rest) = html.split_once("Error <code>").expect("an error's page");
    rest.split('<').next().expect("a code").to_owned()
}

#[tokio::test]
async fn who_is_signed_in_sees_their_own_and_nobody_else_gets_in() {
    let gateway = Gateway::start().await;
    let mut stranger = Browser::new(&gateway);
    let welcome = page(&stranger.get("/").await);
    assert!(welcome.contains("href=\"/console\"") && welcome.contains("href=\"/docs\""));
    assert_eq!(
        location(&stranger.get("/console").await),
        "/console/sign-in"
    );

    let mut alice = Browser::new(&gateway);
    let answer = alice.sign_in(&gateway, "alice").await;
    assert_eq!(location(&answer), "/console");
    let cookie = answer.headers["set-cookie"].to_str().expect("ASCII");
    assert!(cookie.starts_with("weir-console="), "{cookie}");
    for attribute in ["; Path=/", "; HttpOnly", "; SameSite=Strict", "; Max-Age="] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    let html = alice.page("/console").await;
    assert!(html.contains(&gateway.web_user_id("alice").await), "{html}");

    // Neither keys nor tokens open it in any form.
    for client in [gateway.client(), gateway.web("alice")] {
        let answer = client.get("/console").await;
        assert_eq!(location(&answer), "/console/sign-in");
    }
    // The cookie gives access to no other path.
    for path in ["/usage/me", "/api-keys", "/admin/users"] {
        alice.get(path).await.error(401, "UNAUTHENTICATED");
    }

    // After a sign-out the browser forgets the cookie, and a copy of it is invalid.
    let kept = alice.cookies.clone();
    let mut elsewhere = Browser::of(&gateway, "alice").await;
    let answer = alice.post("/console/sign-out", &[]).await;
    assert_eq!(location(&answer), "/console/sign-in");
    assert_eq!(location(&alice.get("/console").await), "/console/sign-in");
    alice.cookies = kept;
    assert_eq!(location(&alice.get("/console").await), "/console/sign-in");
    elsewhere.page("/console").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_signed_out_is_so_on_every_node() {
    for redis in [None, Some(Redis::start())] {
        let url = Postgres::shared().create_database().await;
        let on_them = || {
            let builder = Gateway::builder().postgres(&url);
            match &redis {
                Some(redis) => builder.redis(&redis.url()),
                None => builder,
            }
        };
        let first = on_them().start().await;
        let second = on_them().sharing_secrets_of(&first).start().await;
        let mut alice = Browser::of(&first, "alice").await;
        let mut there = Browser::new(&second);
        there.cookies = alice.cookies.clone();
        there.page("/console").await;
        alice.post("/console/sign-out", &[]).await;
        assert_eq!(location(&there.get("/console").await), "/console/sign-in");
    }
}

#[tokio::test]
async fn a_cookie_that_is_forged_cut_or_another_gateways_is_none() {
    let gateway = Gateway::start().await;
    let mut alice = Browser::of(&gateway, "alice").await;
    let sealed = alice.cookies["weir-console"].clone();
    let other = Gateway::start().await;
    let mut flipped = sealed.clone();
    flipped.replace_range(60..61, if &sealed[60..61] == "A" { "B" } else { "A" });
    let foreign = Browser::of(&other, "alice").await.cookies["weir-console"].clone();
    for bad in ["", "x", &sealed[..sealed.len() - 2], &flipped, &foreign] {
        alice
            .cookies
            .insert("weir-console".to_owned(), bad.to_owned());
        let answer = alice.get("/console").await;
        assert_eq!(location(&answer), "/console/sign-in", "{bad}");
    }
    alice.cookies.insert("weir-console".to_owned(), sealed);
    alice.page("/console").await;
}

#[tokio::test]
async fn who_is_disabled_is_out_at_once_and_a_session_ends_with_its_token() {
    let clock = weir_storage::clock::ManualClock::at(tests::gateway::at("2026-01-31T12:00:00Z"));
    let gateway = Gateway::builder().clock(&clock).start().await;
    let mut alice = Browser::of(&gateway, "alice").await;
    let admin = gateway.admin("root").await;
    let id = gateway.web_user_id("alice").await;
    alice.page("/console").await;
    let path = format!("/admin/users/{id}/disable");
    let answer = admin.post(&path, &json!({})).await;
    assert!(answer.status.is_success(), "{}", answer.text());
    let refused = alice.get("/console").await;
    assert_eq!(refused.status, 403);
    assert_eq!(code_of(&refused), "USER_DISABLED");
    assert_eq!(alice.sign_in(&gateway, "alice").await.status, 403);

    let mut bob = Browser::of(&gateway, "bob").await;
    clock.advance(std::time::Duration::from_secs(3_590));
    bob.page("/console").await;
    clock.advance(std::time::Duration::from_secs(11));
    assert_eq!(location(&bob.get("/console").await), "/console/sign-in");
}

#[tokio::test]
async fn forms_of_other_sites_and_other_sessions_are_refused() {
    let gateway = Gateway::builder()
        .settings("cors_origins = [\"https://app.example\"]")
        .start()
        .await;
    let mut alice = Browser::of(&gateway, "alice").await;
    let mut mallory = Browser::of(&gateway, "mallory").await;
    let (own, theirs) = (alice.form_token().await, mallory.form_token().await);
    assert_ne!(own, theirs);
    for token in ["", "x", &theirs] {
        let answer = alice
            .post_bare("/console/sign-out", &[("form_token", token)])
            .await;
        assert_eq!(answer.status, 403, "{token}");
        assert_eq!(code_of(&answer), "FORM_NOT_ACCEPTED");
    }
    // Even with the token, the request must come from a page of the console.
    let origin = alice.origin.clone();
    for elsewhere in ["https://evil.example", "https://app.example", "null"] {
        alice.origin = elsewhere.to_owned();
        let answer = alice
            .post_bare("/console/sign-out", &[("form_token", &own)])
            .await;
        assert_eq!(answer.status, 403, "{elsewhere}");
    }
    let signed_in = alice.cookies.clone();

    // Only the web app's own pages sign their users in, and redirect them by a page, whose next request has the
    // cookie.
    alice.origin = "https://evil.example".to_owned();
    assert_eq!(alice.sign_in(&gateway, "mallory").await.status, 403);
    assert_eq!(alice.cookies, signed_in);
    alice.origin = "https://app.example".to_owned();
    let answer = alice.sign_in(&gateway, "alice").await;
    assert_eq!(answer.status, 200);
    assert!(page(&answer).contains("content=\"0;url=/console\""));
    alice.origin = origin;
    alice.page("/console").await;

    // Behind another site's link, browsers withhold the cookie.
    let link = gateway
        .stranger()
        .with_header("sec-fetch-site", "cross-site");
    let answer = link.get("/console?from=mail").await;
    assert_eq!(answer.status, 200);
    assert!(page(&answer).contains("content=\"0;url=/console?from=mail\""));
}

#[tokio::test]
async fn tokens_that_prove_nothing_are_refused() {
    let gateway = Gateway::start().await;
    let mut stranger = Browser::new(&gateway);
    let html = stranger
        .page("/console/sign-in?next=https://evil.example")
        .await;
    assert!(html.contains("name=\"next\" value=\"/console\""), "{html}");
    let now = gateway.app().clock.now();
    let tokens = gateway.issuer().web_tokens("alice", now).expect("tokens");
    let (identity, attestation) = (tokens.identity.expose(), tokens.attestation.expose());
    for (identity, attestation) in [
        ("", ""),
        (identity, ""),
        (identity, identity),
        (attestation, identity),
        (gateway.key(), gateway.key()),
    ] {
        let fields = [
            ("identity_token", identity),
            ("attestation_token", attestation),
        ];
        let answer = stranger.post_bare("/console/sign-in", &fields).await;
        assert_eq!(answer.status, 401, "{}", answer.text());
        assert!(page(&answer).contains("role=\"alert\""));
        assert!(!answer.headers.contains_key("www-authenticate"));
    }
    assert!(stranger.cookies.is_empty());
}

/// In production, with its own issuers.
#[tokio::test]
async fn in_production_the_cookie_is_for_tls_alone_and_forged_tokens_shut_their_address_out() {
    let (issuer, key) = (Upstream::start().await, SigningKey::generate("k", "EdDSA"));
    issuer.always(Reply::json(200, &key_set([&key])));
    let base = issuer.base_url();
    let of = |kind: &str, name: &str| {
        format!(
            "[identity.{kind}]\nissuer = \"https://{name}.example\"\naudience = \"app\"\n\
             jwks_url = \"{base}/keys\"\nalgorithms = [\"EdDSA\"]\n"
        )
    };
    let tables = of("web", "id") + &of("attestation", "check");
    let gateway = Gateway::builder()
        .settings("dev = false")
        .tables(&tables)
        .start()
        .await;
    let mut alice = Browser::new(&gateway);
    let html = alice.page("/console/sign-in").await;
    assert!(!html.contains("/console/sign-in/development"), "{html}");
    let refused = alice
        .post_bare("/console/sign-in/development", &[("as", "administrator")])
        .await;
    assert_eq!(refused.status, 404);
    let end = gateway.app().clock.now().seconds() + 600;
    let token = |key: &SigningKey, name: &str| {
        let issuer = format!("https://{name}.example");
        key.token(&json!({ "iss": issuer, "aud": "app", "sub": "alice", "exp": end }))
    };
    let fields = |key: &SigningKey| [token(key, "id"), token(key, "check")];
    let [identity, attestation] = fields(&key);
    let fields_of = |identity: &str, attestation: &str| {
        let owned = |text: &str| text.to_owned();
        [
            ("identity_token", owned(identity)),
            ("attestation_token", owned(attestation)),
        ]
    };
    let good = fields_of(&identity, &attestation);
    let good: Vec<_> = good.iter().map(|(name, text)| (*name, &**text)).collect();
    let answer = alice.post_bare("/console/sign-in", &good).await;
    assert_eq!(location(&answer), "/console");
    let cookie = answer.headers["set-cookie"].to_str().expect("ASCII");
    assert!(cookie.starts_with("__Host-weir-console="), "{cookie}");
    for attribute in ["; Path=/;", "; HttpOnly", "; SameSite=Strict", "; Secure"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    alice.page("/console").await;
    // Under its short name, any page of the host could have set it.
    let sealed = alice.cookies["__Host-weir-console"].clone();
    let mut other = Browser::new(&gateway);
    other.cookies.insert("weir-console".to_owned(), sealed);
    assert_eq!(location(&other.get("/console").await), "/console/sign-in");

    let forger = SigningKey::generate("k", "EdDSA");
    let [identity, attestation] = fields(&forger);
    let forged = fields_of(&identity, &attestation);
    let forged: Vec<_> = forged.iter().map(|(name, text)| (*name, &**text)).collect();
    for _ in 0..10 {
        let answer = other.post_bare("/console/sign-in", &forged).await;
        assert_eq!(answer.status, 401);
    }
    let answer = other.post_bare("/console/sign-in", &good).await;
    assert_eq!(answer.status, 429);
    assert_eq!(code_of(&answer), "LOCKED_OUT");
    assert_eq!(answer.headers["retry-after"], "900");
}

/// Returns the code of a link to the console, as `weir console` gets it at a gateway's admin socket.
async fn link_of(gateway: &Gateway) -> String {
    let socket = gateway.data_dir().join("admin.sock");
    let asked = tokio::process::Command::new("curl")
        .args(["-s", "-X", "POST", "--unix-socket"])
        .arg(socket)
        .arg("http://localhost/local/console-link")
        .output();
    let answer = asked.await.expect("curl runs").stdout;
    let link: serde_json::Value = serde_json::from_slice(&answer).expect("JSON");
    let path = link["path"].as_str().expect("a path");
    let (page, code) = path.split_once('#').expect("a fragment");
    assert_eq!(page, "/console/sign-in");
    code.to_owned()
}

const BY_LINK: &str = "/console/sign-in/link";

/// Without an issuer, a link is the only way in; it is valid on each node that shares the stores.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_signs_an_administrator_in_once_on_any_node() {
    for redis in [None, Some(Redis::start())] {
        let url = Postgres::shared().create_database().await;
        let on_them = || {
            let builder = Gateway::builder().postgres(&url);
            match &redis {
                Some(redis) => builder.redis(&redis.url()),
                None => builder,
            }
        };
        let first = on_them().start().await;
        let second = on_them().sharing_secrets_of(&first).start().await;
        let code = link_of(&first).await;
        let mut admin = Browser::new(&second);
        assert!(admin.page("/console/sign-in").await.contains(BY_LINK));
        let answer = admin.post_bare(BY_LINK, &[("code", &code)]).await;
        assert_eq!(location(&answer), "/console");
        admin.page("/console/admin/users").await;
        let html = admin.page("/console").await;
        assert!(html.contains("administrator"), "{html}");

        // Used, forged, or from another site.
        let mut stranger = Browser::new(&first);
        let forged = "A".repeat(code.len());
        for code in [&*code, &forged, ""] {
            let answer = stranger.post_bare(BY_LINK, &[("code", code)]).await;
            assert_eq!(answer.status, 401, "{}", answer.text());
            assert!(page(&answer).contains("weir console"));
        }
        stranger.origin = "https://evil.example".to_owned();
        let fresh = link_of(&first).await;
        let answer = stranger.post_bare(BY_LINK, &[("code", &fresh)]).await;
        assert_eq!(answer.status, 403);
        assert!(stranger.cookies.is_empty());

        // One of many concurrent uses succeeds.
        let uses = (0..5).map(|number| {
            let node = if number % 2 == 0 { &first } else { &second };
            let (mut browser, fresh) = (Browser::new(node), fresh.clone());
            async move { browser.post_bare(BY_LINK, &[("code", &fresh)]).await.status }
        });
        let statuses = futures_util::future::join_all(uses).await;
        let let_in = statuses.iter().filter(|status| **status == 303).count();
        assert_eq!(let_in, 1, "{statuses:?}");

        // Each node writes its own events with a delay; the first sign-in happened here.
        let admin = second.admin("root").await;
        let events = admin
            .get("/admin/audit?kind=console.signed_in")
            .await
            .json();
        let events = events["events"].as_array().expect("a list");
        assert!(!events.is_empty());
        for event in events {
            let actor = event["actor"].as_str().expect("a text");
            assert!(actor.starts_with("local:"), "{event}");
            assert!(
                event["user_id"]
                    .as_str()
                    .expect("a user")
                    .starts_with("usr_")
            );
            assert_eq!(event["method"], "link");
        }
    }
}

#[tokio::test]
async fn a_link_expires_and_its_administrator_can_be_shut_out() {
    let clock = weir_storage::clock::ManualClock::at(tests::gateway::at("2026-01-31T12:00:00Z"));
    let gateway = Gateway::builder().clock(&clock).start().await;
    let code = link_of(&gateway).await;
    clock.advance(std::time::Duration::from_secs(601));
    let mut late = Browser::new(&gateway);
    let answer = late.post_bare(BY_LINK, &[("code", &code)]).await;
    assert_eq!(answer.status, 401);

    let mut admin = Browser::new(&gateway);
    let code = link_of(&gateway).await;
    admin.post_bare(BY_LINK, &[("code", &code)]).await;
    let html = admin.page("/console").await;
    let (_, rest) = html.split_once("usr_").expect("their id");
    let id: String = rest
        .chars()
        .take_while(char::is_ascii_alphanumeric)
        .collect();
    let root = gateway.admin("root").await;
    let path = format!("/admin/users/usr_{id}/disable");
    let answer = root.post(&path, &json!({})).await;
    assert!(answer.status.is_success(), "{}", answer.text());
    assert_eq!(admin.get("/console").await.status, 403);
    let code = link_of(&gateway).await;
    let answer = admin.post_bare(BY_LINK, &[("code", &code)]).await;
    assert_eq!(answer.status, 403);
}

#[tokio::test]
async fn signing_in_to_the_console_is_recorded() {
    let gateway = Gateway::start().await;
    let id = gateway.web_user_id("alice").await;
    Browser::of(&gateway, "alice").await;
    let admin = gateway.admin("root").await;
    let events = admin
        .get("/admin/audit?kind=console.signed_in")
        .await
        .json();
    let event = &events["events"][0];
    assert_eq!(event["user_id"], *id, "{events}");
    assert_eq!(event["actor"], *format!("user:{id}"));
    assert_eq!(event["method"], "web");
}

#[tokio::test]
async fn pages_count_under_the_rates_of_the_api() {
    let gateway = Gateway::builder()
        .tables("[rate_limits]\nfree = 3\n")
        .start()
        .await;
    // By signing in, with a page, and at the API.
    let mut alice = Browser::of(&gateway, "alice").await;
    alice.page("/console/keys").await;
    assert_eq!(gateway.web("alice").get("/models").await.status, 200);
    let refused = alice.get("/console").await;
    assert_eq!(refused.status, 429);
    assert_eq!(code_of(&refused), "RATE_LIMITED");
    assert!(refused.headers.contains_key("retry-after"));
    let answer = gateway.web("alice").get("/models").await;
    answer.error(429, "RATE_LIMITED");
}

/// With the program itself, whose key `weir serve` prints.
#[tokio::test]
async fn in_development_a_button_signs_in_as_the_user_or_as_an_administrator() {
    let served = Served::configured("");
    let client = served.client();
    client.post("/chat", &tests::chat("demo", "Hello")).await;
    let path = "/console/sign-in/development";
    let mut user = Browser::with(Client::new(client.address()));
    assert!(user.page("/console/sign-in").await.contains(path));
    let answer = user
        .post_bare(path, &[("as", "user"), ("next", "/console/keys")])
        .await;
    assert_eq!(location(&answer), "/console/keys");
    assert!(user.page("/console/keys").await.contains("development"));
    let html = user.page("/console/requests").await;
    assert!(
        html.contains("settled") && !html.contains("administrator"),
        "{html}"
    );
    let mut admin = Browser::with(Client::new(client.address()));
    let answer = admin.post_bare(path, &[("as", "administrator")]).await;
    assert_eq!(location(&answer), "/console");
    assert!(admin.page("/console").await.contains("administrator"));
    // A button of another site's page does not work.
    let mut other = Browser::with(Client::new(client.address()));
    other.origin = "https://evil.example".to_owned();
    assert_eq!(other.post_bare(path, &[]).await.status, 403);
    assert!(other.cookies.is_empty());
}

#[tokio::test]
async fn every_page_is_closed_to_who_is_not_signed_in_and_every_form_to_other_sites() {
    let gateway = Gateway::start().await;
    let mut mallory = Browser::of(&gateway, "mallory").await;
    let (mut pages, mut forms) = (0, 0);
    let rows = endpoints().into_iter();
    for row in rows.filter(|row| matches!(row.access, Access::Session(_))) {
        let path = row.path.replace(['{', '}'], "");
        if row.method == Some(Method::GET) {
            let answer = gateway.stranger().get(&path).await;
            assert!(location(&answer).starts_with("/console/sign-in"), "{path}");
            pages += 1;
        } else {
            let answer = mallory.post_bare(&path, &[]).await;
            assert_eq!(answer.status, 403, "{path}: {}", answer.text());
            // Scripts send no form, and get the API's errors.
            match path.as_str() {
                "/console/playground/chat" => drop(answer.error(403, "FORM_NOT_ACCEPTED")),
                _ => assert_eq!(code_of(&answer), "FORM_NOT_ACCEPTED"),
            }
            forms += 1;
        }
    }
    assert!(pages >= 10 && forms >= 8, "{pages} pages, {forms} forms");
}

#[tokio::test]
async fn a_key_made_there_works_within_its_limits_until_it_is_revoked_there() {
    let gateway = Gateway::start().await;
    let mut alice = Browser::of(&gateway, "alice").await;
    let fields = [
        ("name", "<b>laptop</b>"),
        ("expires_in_days", "7"),
        ("budget_credits", "50"),
        ("window", "day"),
        ("models", "demo"),
        ("regions", "eu, de"),
        ("max_retention_days", "0"),
    ];
    // Each error is beside its field, no key is created, and the input stays.
    for (field, wrong) in [
        ("expires_in_days", "0"),
        ("expires_in_days", "soon"),
        ("budget_credits", "-1"),
        ("models", "none"),
        ("regions", "EU"),
        ("max_retention_days", "week"),
    ] {
        let wrong = fields.map(|(name, value)| (name, if name == field { wrong } else { value }));
        let answer = alice.post("/console/keys", &wrong).await;
        assert_eq!(answer.status, 400, "{field}: {}", answer.text());
        let html = page(&answer);
        assert!(html.contains("class=\"error\""), "{field}: {html}");
        assert!(html.contains("You have no keys yet."), "{html}");
        assert!(html.contains("value=\"&#60;b&#62;laptop"), "{html}");
    }
    let answer = alice.post("/console/keys", &fields).await;
    assert_eq!(location(&answer), "/console/keys/made");
    let html = alice.page("/console/keys/made").await;
    let (_, rest) = html.split_once("id=\"key\">").expect("the key");
    let raw = rest.split('<').next().expect("the key").to_owned();
    for used in [
        "curl",
        "OpenAI",
        "Anthropic",
        "Claude Code",
        "Codex",
        "Vercel AI SDK",
    ] {
        assert!(html.contains(used), "{used} in {html}");
    }
    let base = format!("http://{}", gateway.address());
    assert!(
        html.contains(&base) && html.matches(&raw).count() >= 7,
        "{html}"
    );
    let client = gateway.stranger().with_key(&raw);
    let chat = tests::chat("demo", "Hello");
    assert_eq!(
        client.post("/chat", &chat).await.content(),
        "You said: Hello"
    );
    let keys = gateway.web("alice").get("/api-keys").await.json();
    let key = &keys["api_keys"][0];
    assert_eq!(
        (&key["name"], &key["models"]),
        (&json!("<b>laptop</b>"), &json!(["demo"]))
    );
    assert_eq!(key["budgets"][0]["window"], "day");
    let limits = serde_json::json!({ "regions": ["eu", "de"], "max_retention_days": 0 });
    assert_eq!(key["data_limits"], limits);
    let id = key["key_id"].as_str().expect("a text");
    // A reload shows no key and creates none.
    let again = alice.get("/console/keys/made").await;
    assert_eq!(location(&again), "/console/keys");
    assert!(alice.page("/console/keys").await.contains("shown once"));
    let keys = gateway.web("alice").get("/api-keys").await.json();
    assert_eq!(keys["api_keys"].as_array().map(Vec::len), Some(1), "{keys}");

    // The console shows every limit of the key.
    let options = json!({ "filter_options": { "tone": "<b>mild", "kinds": "a" } });
    let path = format!("/api-keys/{id}/filter-options");
    let web = gateway.web("alice");
    let set = web.follow(Method::PUT, &path, &options).await;
    assert_eq!(set.status, 200);
    let html = alice.page("/console/keys").await;
    for limit in [
        "of 50 left (day)",
        "demo<br>",
        "Filter option kinds: a<br>Filter option tone: &#60;b&#62;mild<br>",
    ] {
        assert!(html.contains(limit), "{limit} in {html}");
    }
    assert!(
        !html.contains(&raw) && !html.contains("<b>laptop"),
        "{html}"
    );
    assert!(html.contains("at most 0 days of retention"), "{html}");
    // Another user's key looks like a missing one, and continues to work.
    let mut mallory = Browser::of(&gateway, "mallory").await;
    for id in [id, "key_0000000000000000", "%00"] {
        let path = format!("/console/keys/{id}/revoke");
        let answer = mallory.post(&path, &[]).await;
        assert_eq!(answer.status, 404, "{}", answer.text());
    }
    assert_eq!(client.get("/models").await.status, 200);
    let answer = alice.post(&format!("/console/keys/{id}/revoke"), &[]).await;
    assert_eq!(location(&answer), "/console/keys");
    client.get("/models").await.error(401, "UNAUTHENTICATED");
    // The notice appears once.
    let done = "The key is revoked";
    assert!(alice.page("/console/keys").await.contains(done));
    assert!(!alice.page("/console/keys").await.contains(done));
}

#[tokio::test]
async fn usage_and_requests_are_the_apis_and_nobody_elses() {
    let gateway = Gateway::start().await;
    let mut alice = Browser::of(&gateway, "alice").await;
    let web = gateway.web("alice");
    let asked = web.post("/chat", &tests::chat("demo", "a secret")).await;
    let id = asked.headers["x-request-id"]
        .to_str()
        .expect("ASCII")
        .to_owned();
    let known = web.get(&format!("/usage/requests/{id}")).await.json();
    let digest = known["adapter_digest"]
        .as_str()
        .expect("a component has served");
    assert!(
        known["held_credits"].as_f64() >= known["credits"].as_f64(),
        "{known}"
    );
    let path = format!("/console/requests/{id}");
    let html = alice.page(&path).await;
    let attempts = "<dt>Attempts</dt><dd>1</dd>";
    for text in [&id, "demo", "settled", digest, attempts] {
        assert!(html.contains(text), "{text} in {html}");
    }
    for listing in [
        "/console/requests",
        "/console/requests?model=demo",
        "/console",
    ] {
        let html = alice.page(listing).await;
        assert!(html.contains(&path), "{listing}: {html}");
        assert!(!html.contains("a secret"));
    }
    let html = alice.page("/console/requests?model=other").await;
    assert!(!html.contains(&path), "{html}");
    let html = alice.page("/console/usage").await;
    assert!(
        html.contains("<svg") && html.contains("Signed in"),
        "{html}"
    );
    for (wrong, field) in [
        ("/console/requests?key=key_0", "The key does not exist"),
        ("/console/requests?from=x", "must be a day"),
        (
            "/console/usage?from=2026-02-02&to=2026-02-01",
            " is before ",
        ),
        (
            "/console/usage?from=2020-01-01&to=2026-02-01",
            "covers at most",
        ),
    ] {
        let answer = alice.get(wrong).await;
        assert_eq!(answer.status, 400, "{wrong}");
        assert!(page(&answer).contains(field), "{wrong}: {}", answer.text());
    }
    assert_eq!(alice.get("/console/requests?user_id=x").await.status, 400);

    let mut mallory = Browser::of(&gateway, "mallory").await;
    for id in [&*id, "req_0", "%00", "'%20OR%20'1'='1"] {
        let answer = mallory.get(&format!("/console/requests/{id}")).await;
        assert_eq!(answer.status, 404, "{id}");
        assert_eq!(code_of(&answer), "UNKNOWN_REQUEST");
    }
    for listing in ["/console/requests", "/console/usage", "/console"] {
        let html = mallory.page(listing).await;
        assert!(!html.contains("demo"), "{listing}: {html}");
    }
}

#[tokio::test]
async fn credits_are_bought_from_the_console() {
    let gateway = Gateway::start().await;
    let mut alice = Browser::of(&gateway, "alice").await;
    // The page says that a card is necessary.
    let wish = [("enabled", "yes"), ("tier", "small"), ("threshold", "100")];
    let answer = alice.post("/console/money/auto-top-up", &wish).await;
    assert_eq!(answer.status, 409);
    assert!(page(&answer).contains("There is no card to charge yet"));
    let answer = alice.post("/console/money/portal", &[]).await;
    assert_eq!(answer.status, 404);
    page(&answer);
    let answer = alice
        .post("/console/money/top-up", &[("tier", "huge")])
        .await;
    assert_eq!(answer.status, 400);
    assert!(page(&answer).contains("The tier is"));

    for (path, field) in [
        ("/console/money/top-up", ("tier", "small")),
        ("/console/money/plan", ("plan", "guru")),
    ] {
        let pay = pay_page(&mut alice, path, field).await;
        let left = alice.post_bare(&format!("{pay}/cancel"), &[]).await;
        let back = way_back(&alice, &left);
        assert!(
            alice.page(&back).await.contains("You have not paid"),
            "{back}"
        );
        let pay = pay_page(&mut alice, path, field).await;
        let paid = alice.post_bare(&format!("{pay}/pay"), &[]).await;
        let back = way_back(&alice, &paid);
        let html = alice.page(&back).await;
        assert!(
            html.contains("Thank you") && html.contains("hx-get=\"/console/money"),
            "{html}"
        );
    }
    let html = alice.page("/console/money").await;
    assert!(
        html.contains("5,000") && html.contains("From the guru plan"),
        "{html}"
    );
    let bad = [("tier", "small"), ("threshold", "0")];
    let answer = alice.post("/console/money/auto-top-up", &bad).await;
    assert_eq!(answer.status, 400);
    assert!(page(&answer).contains("id=\"threshold-error\""));
    let answer = alice.post("/console/money/auto-top-up", &wish).await;
    assert_eq!(location(&answer), "/console/money");
    let wish = gateway.web("alice").get("/billing/auto-topup").await.json();
    assert_eq!(
        (&wish["enabled"], &wish["threshold"]),
        (&json!(true), &json!(100))
    );
}

/// Returns the path of the payment page to which a form of the console leads.
async fn pay_page(browser: &mut Browser, path: &str, field: (&str, &str)) -> String {
    let answer = browser.post(path, &[field]).await;
    assert_eq!(answer.status, 200);
    let html = page(&answer);
    let (_, rest) = html.split_once("content=\"0;url=").expect("a way on");
    let url = rest.split('"').next().expect("a URL");
    let pay = url.strip_prefix(&browser.origin).expect("its own page");
    pay.to_owned()
}

/// Returns the path of the console to which a payment page leads back.
fn way_back(browser: &Browser, answer: &Answer) -> String {
    assert_eq!(answer.status, 303, "{}", answer.text());
    let back = location(answer);
    let path = back.strip_prefix(&browser.origin);
    path.unwrap_or_else(|| panic!("it leads to {back}"))
        .to_owned()
}

#[tokio::test]
async fn a_payment_page_leads_back_to_the_place_that_has_asked_for_it_last() {
    let gateway = Gateway::start().await;
    let mut alice = Browser::of(&gateway, "alice").await;
    let web = gateway.web("alice");
    let tier = json!({ "tier": "small" });
    let asked = async || {
        let answer = web.post("/billing/topup", &tier).await.json();
        answer["checkout_url"].as_str().expect("a URL").to_owned()
    };
    let top_up = ("/console/money/top-up", ("tier", "small"));
    let of_api = asked().await;
    assert_eq!(asked().await, of_api);
    let of_console = pay_page(&mut alice, top_up.0, top_up.1).await;
    assert_eq!(pay_page(&mut alice, top_up.0, top_up.1).await, of_console);
    let (_, of_api) = of_api.split_once(&alice.origin).expect("its own page");
    assert_ne!(of_api, of_console);
    // Nobody can pay on the replaced page.
    let late = alice.post_bare(&format!("{of_api}/pay"), &[]).await;
    assert!(!location(&late).contains("paid"), "{}", late.text());
    let paid = alice.post_bare(&format!("{of_console}/pay"), &[]).await;
    assert_eq!(way_back(&alice, &paid), "/console/money?came=paid");
    let usage = gateway.web("alice").get("/usage/me").await.json();
    assert_eq!(usage["topup_balance"], 5000);
}

#[tokio::test]
async fn a_swarm_is_started_followed_and_cancelled_by_its_own_user() {
    let gateway = Gateway::builder().swarms().start().await;
    let mut alice = Browser::of(&gateway, "alice").await;
    let fields = [
        ("template", "Content Pipeline"),
        ("context", "Rivers <i>only</i>"),
    ];
    let answer = alice.post("/console/swarms", &fields).await;
    assert_eq!(answer.status, 403, "{}", answer.text());
    let html = page(&answer);
    assert!(
        html.contains("role=\"alert\"") && html.contains("Rivers &#60;i"),
        "{html}"
    );
    // A plan that has swarms.
    let admin = gateway.admin("root").await;
    let path = format!("/admin/users/{}/plan", gateway.web_user_id("alice").await);
    let answer = admin.post(&path, &json!({ "plan": "pro" })).await;
    assert!(answer.status.is_success(), "{}", answer.text());

    let answer = alice.post("/console/swarms", &[("template", "none")]).await;
    assert_eq!(answer.status, 400);
    let answer = alice.post("/console/swarms", &fields).await;
    let path = location(&answer).to_owned();
    let html = alice.page(&path).await;
    assert!(
        html.contains("Trend Researcher") && html.contains("Editor"),
        "{html}"
    );
    // The swarm continues to its end, which its page reports.
    let events = alice.get(&format!("{path}/events")).await;
    assert_eq!(events.headers["content-type"], "text/event-stream");
    assert!(events.text().contains("swarm_done"), "{}", events.text());
    let html = alice.page(&format!("{path}/state")).await;
    assert!(
        html.contains("completed") && !html.contains("<html"),
        "{html}"
    );
    assert!(alice.page("/console/swarms").await.contains(&path));

    let id = path.rsplit('/').next().expect("an id");
    let mut mallory = Browser::of(&gateway, "mallory").await;
    for id in [id, "0", "%00", &"0".repeat(32)] {
        for part in ["", "/state", "/events"] {
            let answer = mallory.get(&format!("/console/swarms/{id}{part}")).await;
            assert_eq!(answer.status, 404, "{id}{part}");
        }
        let answer = mallory
            .post(&format!("/console/swarms/{id}/cancel"), &[])
            .await;
        assert_eq!(answer.status, 404);
    }
    let answer = alice.post(&format!("{path}/cancel"), &[]).await;
    assert_eq!(location(&answer), path);
    assert!(alice.page(&path).await.contains("ends within two seconds"));
}

#[tokio::test]
async fn files_are_kept_for_ever_by_their_digest() {
    let gateway = Gateway::start().await;
    let mut browser = Browser::new(&gateway);
    let html = browser.page("/console/sign-in").await;
    let files: Vec<_> = html
        .split('"')
        .filter(|part| part.starts_with("/console/assets/"))
        .collect();
    assert_eq!(files.len(), 3, "{html}");
    for file in files {
        let answer = browser.get(file).await;
        assert_eq!(answer.status, 200);
        let caching = &answer.headers["cache-control"];
        assert_eq!(caching, "public, max-age=31536000, immutable");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        let gone = browser.get(&file.replace('.', ".0")).await;
        assert_eq!(gone.status, 404);
        assert_eq!(gone.headers["cache-control"], "no-store");
    }
}
