//! The console: who gets in, what its pages may do, and that what is done there is done.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, header};
use tests::{Answer, Client, Gateway};
use url::form_urlencoded;

/// A browser: it keeps cookies, and says where its forms come from.
struct Browser {
    client: Client,
    origin: String,
    cookies: BTreeMap<String, String>,
}

impl Browser {
    fn new(gateway: &Gateway) -> Self {
        Self {
            client: gateway.stranger(),
            origin: format!("http://{}", gateway.address()),
            cookies: BTreeMap::new(),
        }
    }

    /// A web user's, who has signed in by their tokens.
    async fn of(gateway: &Gateway, user: &str) -> Self {
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

    async fn get(&mut self, path: &str) -> Answer {
        self.ask(Method::GET, path, None).await
    }

    /// A page, which must be there and be allowed what pages are.
    async fn page(&mut self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        page(&answer)
    }

    /// Sends a form of a page, with the token that the page has.
    async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let token = self.form_token().await;
        let mut fields = fields.to_vec();
        fields.push(("form_token", &token));
        self.post_bare(path, &fields).await
    }

    async fn form_token(&mut self) -> String {
        let html = self.page("/console").await;
        let (_, rest) = html
            .split_once("name=\"form_token\" value=\"")
            .expect("a form");
        rest.split('"').next().expect("a token").to_owned()
    }

    async fn post_bare(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
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

/// Checks what every page has, and returns its text.
fn page(answer: &Answer) -> String {
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
    // What the policy would not let work.
    for inline in ["<style", " style=", "<script>", " onclick=", "javascript:"] {
        assert!(!html.contains(inline), "{inline} in {html}");
    }
    html
}

fn location(answer: &Answer) -> &str {
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

    // Neither keys nor tokens open it, in whatever way they come.
    for client in [gateway.client(), gateway.web("alice")] {
        let answer = client.get("/console").await;
        assert_eq!(location(&answer), "/console/sign-in");
    }
    // And the cookie opens nothing else.
    for path in ["/usage/me", "/api-keys", "/admin/users"] {
        alice.get(path).await.error(401, "UNAUTHENTICATED");
    }

    // What is signed out is forgotten by the browser.
    let answer = alice.post("/console/sign-out", &[]).await;
    assert_eq!(location(&answer), "/console/sign-in");
    assert_eq!(location(&alice.get("/console").await), "/console/sign-in");
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
    let answer = admin.post(&path, &serde_json::json!({})).await;
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
    // Whoever knows the token, too, must be a page of the console.
    let origin = alice.origin.clone();
    for elsewhere in ["https://evil.example", "https://app.example", "null"] {
        alice.origin = elsewhere.to_owned();
        let answer = alice
            .post_bare("/console/sign-out", &[("form_token", &own)])
            .await;
        assert_eq!(answer.status, 403, "{elsewhere}");
    }
    let signed_in = alice.cookies.clone();

    // Only the web app's own pages sign their users in, and send them on by a page, whose next request has the cookie.
    alice.origin = "https://evil.example".to_owned();
    assert_eq!(alice.sign_in(&gateway, "mallory").await.status, 403);
    assert_eq!(alice.cookies, signed_in);
    alice.origin = "https://app.example".to_owned();
    let answer = alice.sign_in(&gateway, "alice").await;
    assert_eq!(answer.status, 200);
    assert!(page(&answer).contains("content=\"0;url=/console\""));
    alice.origin = origin;
    alice.page("/console").await;

    // Behind another site's link, browsers keep the cookie to themselves.
    let link = gateway
        .stranger()
        .with_header("sec-fetch-site", "cross-site");
    let answer = link.get("/console?from=mail").await;
    assert_eq!(answer.status, 200);
    assert!(page(&answer).contains("content=\"0;url=/console?from=mail\""));
}

#[tokio::test]
async fn tokens_that_prove_nothing_are_refused_and_count_against_their_address() {
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
    for _ in 0..20 {
        stranger.post_bare("/console/sign-in", &[]).await;
    }
    let answer = stranger.sign_in(&gateway, "alice").await;
    assert_eq!(answer.status, 429);
    assert_eq!(code_of(&answer), "LOCKED_OUT");
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
