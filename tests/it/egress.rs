//! Requests of tools: only to public or exempt addresses, only to permitted hosts, and within their limits.
//!
//! The test resolves names, and an operator's exemption makes 127.0.0.1 stand for the Internet.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use tests::tls::client_config;
use tests::{Reply, TlsFront, Upstream};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use weir_egress::{
    Credential, EgressPolicy, EgressRefusal, EgressRequest, EgressResponse, EgressStage, Guard,
    GuardSettings, RefusalKind, Resolver, Rule, webhook,
};
use weir_storage::secrets::Secret;

use crate::cli::{text, weir};

/// Stands for a public address.
const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Stands for an address behind a firewall, with the same ports.
const PRIVATE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

const SECRET: &str = "s3cret-credential";

/// Part of the query of every URL; no refusal may repeat it.
const QUERY: &str = "?token=qu3ry";

const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

/// A guard that resolves every name to this address.
fn guard_where_all_is(address: IpAddr) -> Guard {
    guard(Resolver::new(move |_| async move { Ok(vec![address]) }))
}

fn guard(resolver: Resolver) -> Guard {
    let settings = GuardSettings {
        tls: client_config(),
        user_agent: HeaderValue::from_static("weir"),
    };
    Guard::new(settings, resolver)
}

/// The policy that permits hosts at [`PUBLIC`] with these ports.
fn policy(ports: &[u16]) -> EgressPolicy {
    EgressPolicy {
        ports: ports.to_vec(),
        exemptions: vec!["127.0.0.1/32".parse().expect("a network")],
        timeout: Duration::from_secs(60),
        ..EgressPolicy::http()
    }
}

fn credential(origin: &str) -> Credential {
    Credential {
        name: "example-key".into(),
        value: Secret::new(SECRET.into()),
        origin: origin.parse().expect("an origin"),
        methods: vec![Method::GET],
        path_prefix: "/v1".into(),
        header: KEY_HEADER,
    }
}

/// A `GET` with a credential for `origin`.
fn with_credential(url: &str, origin: &str) -> EgressRequest {
    EgressRequest {
        credential: Some(credential(origin)),
        ..EgressRequest::new(Method::GET, format!("{url}{QUERY}"))
    }
}

/// Returns the refusal, which quotes no input.
async fn refused(guard: &Guard, request: EgressRequest, policy: &EgressPolicy) -> EgressRefusal {
    let refusal = guard.fetch(request, policy).await.expect_err("a refusal");
    let shown = format!("{refusal} {refusal:?} {}", refusal.stage);
    for secret in [SECRET, "qu3ry", "127.0.0.1", "127.0.0.2", "example.com"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    refusal
}

async fn fetched(guard: &Guard, request: EgressRequest, policy: &EgressPolicy) -> EgressResponse {
    guard.fetch(request, policy).await.expect("an answer")
}

/// Returns the paths of all requests with the credential.
fn holders(upstreams: &[&Upstream]) -> Vec<String> {
    let requests = upstreams.iter().flat_map(|upstream| upstream.requests());
    let holders = requests.filter(|request| format!("{request:?}").contains(SECRET));
    holders.map(|request| request.path).collect()
}

fn check(file: &str, input: &str) -> Output {
    check_in(Path::new(env!("CARGO_MANIFEST_DIR")), &[file], input)
}

fn check_in(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut command = weir(folder);
    command.args(["egress", "check"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("weir runs");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).expect("weir reads");
    drop(stdin);
    child.wait_with_output().expect("weir ends")
}

#[test]
fn s1_the_guard_decides_every_case_as_listed() {
    for (file, count) in [("cases", 202), ("spellings", 244)] {
        let output = check(&format!("egress/{file}.jsonl"), "");
        let said = text(&output.stdout);
        assert_eq!(said, format!("{count} cases, 0 disagreements\n"));
        assert!(output.status.success());
    }
}

#[test]
fn a_check_prints_each_disagreement_and_fails_and_names_a_line_that_is_no_case() {
    let sound = r#"{"id":"sound","url":"https://10.0.0.1/","verdict":"block","stage":"ip"}"#;
    let wrong = r#"{"id":"wrong","url":"https://10.0.0.1/","verdict":"allow"}"#;
    let output = check("-", &format!("{sound}\n\n{wrong}\n"));
    let said = text(&output.stdout);
    assert!(
        said.starts_with("wrong: expected allow; the guard decided block at ip"),
        "{said}"
    );
    assert!(said.ends_with("\n2 cases, 1 disagreements\n"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    let output = check("-", &format!("{sound}\n\n{{\"id\":\"no verdict\"}}\n"));
    assert!(text(&output.stderr).contains("line 3: missing field"));
    assert_eq!(output.status.code(), Some(2));
    for nothing in [check("-", "\n"), check("no/such/file", "")] {
        assert_eq!(nothing.status.code(), Some(2));
    }
}

#[test]
fn an_operator_tries_a_tools_policy_before_granting_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let toml = "[tools.narrow]\nhosts = [\"api.example.com\"]\npaths = [\"/v1\"]\nprivate = [\"10.1.0.0/16\"]\n";
    std::fs::write(folder.path().join("weir.toml"), toml).expect("the folder can be written");
    let dns = r#""dns":{"api.example.com":["10.1.0.7"]}"#;
    let cases = [
        format!(
            r#"{{"id":"1","url":"https://api.example.com/v1/a","verdict":"allow","stage":"dns",{dns}}}"#
        ),
        format!(
            r#"{{"id":"2","url":"https://api.example.com/v2","verdict":"block","stage":"policy",{dns}}}"#
        ),
        format!(
            r#"{{"id":"3","url":"https://example.com/v1","verdict":"block","stage":"policy",{dns}}}"#
        ),
        format!(
            r#"{{"id":"4","url":"http://api.example.com/v1","verdict":"block","stage":"scheme",{dns}}}"#
        ),
    ];
    let with = |tool: &str| check_in(folder.path(), &["-", "--tool", tool], &cases.join("\n"));
    let output = with("narrow");
    assert_eq!(
        text(&output.stdout),
        "4 cases, 0 disagreements\n",
        "{}",
        text(&output.stderr)
    );
    assert_eq!(
        with("http_get").status.code(),
        Some(1),
        "another tool has another policy"
    );
    let unknown = with("nothing");
    assert!(text(&unknown.stderr).contains("`tools.nothing`"));
    assert_eq!(unknown.status.code(), Some(2));
}

/// Each call resolves anew, and so does a redirect; no call reuses a connection of an earlier one.
#[tokio::test]
async fn s3_a_name_that_flips_to_a_private_address_is_never_dialled_there() {
    let upstream = Upstream::start().await;
    let port = upstream.address().port();
    let private = TcpListener::bind((PRIVATE, port))
        .await
        .expect("the port is free there, too");
    let dials = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&dials);
    let listening = tokio::spawn(async move {
        while let Ok((_, from)) = private.accept().await {
            assert!(from.ip().is_loopback());
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let lookups = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&lookups);
    let guard = guard(Resolver::new(move |_| {
        // Public, private, both, both in the other order; a redirect takes the next one.
        let answer = match asked.fetch_add(1, Ordering::SeqCst) % 4 {
            0 => vec![PUBLIC],
            1 => vec![PRIVATE],
            2 => vec![PUBLIC, PRIVATE],
            _ => vec![PRIVATE, PUBLIC],
        };
        async move { Ok(answer) }
    }));
    let policy = policy(&[port]);
    let url = format!("http://flips.example.com:{port}/");
    // Every second response redirects to the name itself, which is private by then.
    for _ in 0..500 {
        upstream.will(Reply::redirect(302, "/again"));
        upstream.will(Reply::new(200).body("public"));
    }
    let (mut served, mut redirected) = (0, 0);
    for _ in 0..1_000 {
        match guard
            .fetch(EgressRequest::new(Method::GET, &url), &policy)
            .await
        {
            Ok(answer) => {
                assert_eq!(answer.body, "public");
                served += 1;
            }
            Err(refusal) => {
                assert!(matches!(refusal.rule, Rule::Resolved(_)), "{refusal}");
                redirected += usize::from(refusal.stage == EgressStage::Redirect);
            }
        }
    }
    assert!(served > 100 && redirected > 100, "{served}, {redirected}");
    assert_eq!(dials.load(Ordering::SeqCst), 0, "private dials");
    // Proof that the count detects a connection.
    TcpStream::connect((PRIVATE, port))
        .await
        .expect("it listens");
    while dials.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    listening.abort();
}

#[tokio::test]
async fn g2_a_credential_is_sent_to_its_origin_method_path_and_header_alone() {
    let (own, other) = (Upstream::start().await, Upstream::start().await);
    let (port, other_port) = (own.address().port(), other.address().port());
    let guard = guard_where_all_is(PUBLIC);
    let mut policy = policy(&[port, other_port]);
    policy.headers = vec![KEY_HEADER];
    let origin = format!("http://api.example.com:{port}");
    own.always(Reply::new(200));
    other.always(Reply::new(200));

    for (url, bound) in [
        (format!("http://other.example.com:{port}/v1/a"), "origin"),
        (format!("http://example.com:{port}/v1/a"), "origin"),
        (
            format!("http://api.example.com:{other_port}/v1/a"),
            "origin",
        ),
        (format!("https://api.example.com:{port}/v1/a"), "origin"),
        (format!("{origin}/v2/a"), "path"),
        (format!("{origin}/v1a"), "path"),
        (format!("{origin}/v1/../v2"), "path"),
        (format!("{origin}/v1/%2e%2e/v2"), "path"),
    ] {
        let refusal = refused(&guard, with_credential(&url, &origin), &policy).await;
        assert_eq!(refusal.stage, EgressStage::Credential, "{url}");
        let name = "example-key".to_owned();
        assert_eq!(
            refusal.rule,
            Rule::CredentialBound { name, what: bound },
            "{url}"
        );
        assert!(!refusal.sent);
    }
    for unclear in [
        "/v1/..%2fv2",
        "/v1/..%5cv2",
        "/v1/%252e%252e/v2",
        "/v1/..;/v2",
    ] {
        let request = with_credential(&format!("{origin}{unclear}"), &origin);
        assert_eq!(
            refused(&guard, request, &policy).await.rule,
            Rule::PathUnclear,
            "{unclear}"
        );
    }
    let mut by_post = with_credential(&format!("{origin}/v1/a"), &origin);
    by_post.method = Method::POST;
    assert_eq!(
        refused(&guard, by_post, &policy).await.stage,
        EgressStage::Credential
    );
    for header in ["X-Api-Key", "Authorization", "Host", "Proxy-Authorization"] {
        let mut overridden = with_credential(&format!("{origin}/v1/a"), &origin);
        overridden.headers = vec![(header.into(), "mine".into())];
        assert_eq!(
            refused(&guard, overridden, &policy).await.stage,
            EgressStage::Header,
            "{header}"
        );
    }
    assert_eq!(own.count() + other.count(), 0, "nothing of it was sent");

    let request = with_credential(&format!("{origin}/v1/a"), &origin);
    fetched(&guard, request, &policy).await;
    assert_eq!(own.next_request().await.header("x-api-key"), Some(SECRET));
    assert_eq!(holders(&[&own, &other]), [format!("/v1/a{QUERY}")]);
}

#[tokio::test]
async fn g2_a_credential_follows_no_redirect_but_below_its_own_path() {
    let (own, other) = (Upstream::start().await, Upstream::start().await);
    let (port, other_port) = (own.address().port(), other.address().port());
    let guard = guard_where_all_is(PUBLIC);
    let mut policy = policy(&[port, other_port]);
    policy.headers = vec![HeaderName::from_static("x-custom")];
    let origin = format!("http://api.example.com:{port}");
    let first = format!("/v1/a{QUERY}");
    for (hops, with) in [
        (vec!["/v1/b".to_owned()], vec!["/v1/b"]),
        (
            vec!["/v1/b".to_owned(), "/v1/c".to_owned()],
            vec!["/v1/b", "/v1/c"],
        ),
        (vec!["/v2/b".to_owned()], vec![]),
        // A removed version does not come back.
        (vec!["/v2/b".to_owned(), "/v1/c".to_owned()], vec![]),
        (
            vec![format!("http://other.example.com:{port}/v1/b")],
            vec![],
        ),
        (
            vec![format!("http://api.example.com:{other_port}/v1/b")],
            vec![],
        ),
        (vec![format!("//api.example.com:{other_port}/v1/b")], vec![]),
        (
            vec![
                format!("http://other.example.com:{port}/v1/b"),
                format!("{origin}/v1/c"),
            ],
            vec![],
        ),
    ] {
        let before = holders(&[&own, &other]).len();
        let sent_before = own.count() + other.count();
        for hop in &hops {
            own.will(Reply::redirect(307, hop));
        }
        own.always(Reply::new(200));
        other.always(Reply::new(200));
        let mut request = with_credential(&format!("{origin}/v1/a"), &origin);
        request.headers = vec![
            ("accept".into(), "text/plain".into()),
            ("x-custom".into(), "1".into()),
        ];
        request
            .host_headers
            .insert("idempotency-key", HeaderValue::from_static("k"));
        let answer = fetched(&guard, request, &policy).await;
        assert_eq!(answer.status, 200);
        assert!(
            answer
                .url
                .ends_with(hops[hops.len() - 1].trim_start_matches("//")),
            "{}",
            answer.url
        );
        assert_eq!(own.count() + other.count() - sent_before, hops.len() + 1);
        let mut expected = vec![first.clone()];
        expected.extend(with.iter().map(|path| (*path).to_owned()));
        assert_eq!(holders(&[&own, &other])[before..], expected, "{hops:?}");
    }
    // Another origin gets no header that could identify the caller.
    for request in other.requests() {
        assert_eq!(request.header("accept"), Some("text/plain"));
        assert_eq!(request.header("x-custom"), None);
        assert_eq!(request.header("idempotency-key"), None);
    }
    assert_eq!(other.count(), 2);
}

#[tokio::test]
async fn g2_nothing_is_sent_without_the_tls_that_was_asked_for() {
    let upstream = Upstream::start().await;
    let front = TlsFront::before(&upstream).await;
    let (port, plain) = (front.address().port(), upstream.address().port());
    let guard = guard_where_all_is(PUBLIC);
    let mut policy = policy(&[port, plain]);
    upstream.always(Reply::new(200).body("over TLS"));

    let no_tls = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let no_tls_port = no_tls.local_addr().expect("a bound socket").port();
    policy.ports.push(no_tls_port);
    let answering = tokio::spawn(async move {
        while let Ok((mut stream, _)) = no_tls.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    // A certificate of another name; then a port without TLS.
    for wrong in [
        format!("https://api.example.org:{port}"),
        format!("https://api.example.com:{no_tls_port}"),
    ] {
        let refusal = refused(
            &guard,
            with_credential(&format!("{wrong}/v1/a"), &wrong),
            &policy,
        )
        .await;
        assert!(matches!(refusal.rule, Rule::Tls(_)), "{refusal:?}");
        assert!(!refusal.sent);
        assert_eq!(refusal.kind(), RefusalKind::Unreachable);
    }
    answering.abort();
    let origin = format!("https://api.example.com:{port}");
    let url = format!("{origin}/v1/a");
    let answer = fetched(&guard, with_credential(&url, &origin), &policy).await;
    assert_eq!(answer.body, "over TLS");
    assert_eq!(
        upstream.next_request().await.header("x-api-key"),
        Some(SECRET)
    );

    upstream.will(Reply::redirect(
        302,
        &format!("http://api.example.com:{plain}/v1/b"),
    ));
    let refusal = refused(&guard, with_credential(&url, &origin), &policy).await;
    assert_eq!(refusal.rule, Rule::Downgrade);
    assert_eq!((refusal.stage, refusal.sent), (EgressStage::Redirect, true));
    upstream.next_request().await;
    assert_eq!(upstream.count(), 2, "the redirect was not followed");
}

#[tokio::test]
async fn a_webhook_is_signed_and_follows_no_redirect() {
    let upstream = Upstream::start().await;
    let front = TlsFront::before(&upstream).await;
    let port = front.address().port();
    let guard = guard_where_all_is(PUBLIC);
    let policy = EgressPolicy {
        ports: vec![port],
        exemptions: policy(&[]).exemptions,
        ..EgressPolicy::webhook()
    };
    let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into());
    let body = br#"{"test": 2432232314}"#;
    let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    let signed: HeaderMap =
        webhook::headers(&secret, id, 1_614_265_330, body).expect("a signature");
    let request = |url: String| EgressRequest {
        headers: vec![("content-type".into(), "application/json".into())],
        host_headers: signed.clone(),
        body: body.as_slice().into(),
        ..EgressRequest::new(Method::POST, url)
    };
    let url = format!("https://hook.example.com:{port}/hook{QUERY}");
    upstream.will(Reply::new(204));
    assert_eq!(
        fetched(&guard, request(url.clone()), &policy).await.status,
        204
    );
    let arrived = upstream.next_request().await;
    assert_eq!(arrived.body, &body[..]);
    assert_eq!(arrived.header("webhook-id"), Some(id));
    assert_eq!(
        arrived.header("webhook-signature"),
        Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
    );

    upstream.will(Reply::redirect(307, "/elsewhere"));
    let refusal = refused(&guard, request(url), &policy).await;
    assert_eq!((refusal.rule, refusal.sent), (Rule::RedirectRefused, true));
    for (url, stage) in [
        (
            format!("http://hook.example.com:{port}/"),
            EgressStage::Scheme,
        ),
        (format!("https://127.0.0.1:{port}/"), EgressStage::Ip),
    ] {
        assert_eq!(refused(&guard, request(url), &policy).await.stage, stage);
    }
    assert_eq!(upstream.count(), 2);
}

/// In a URL, a label of a name, a header or a body: data leaves only to listed hosts.
#[tokio::test]
async fn a_host_that_is_not_listed_is_not_even_looked_up() {
    let upstream = Upstream::start().await;
    let port = upstream.address().port();
    let lookups = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&lookups);
    let guard = guard(Resolver::new(move |_| {
        asked.fetch_add(1, Ordering::SeqCst);
        async { Ok(vec![PUBLIC]) }
    }));
    let mut policy = policy(&[port]);
    policy.hosts = ["api.example.com", "*.cdn.example.com"]
        .map(|host| host.parse().expect("a host"))
        .into();
    policy.methods = vec![Method::GET];
    policy.path_prefixes = vec!["/v1".into()];
    let get = |url: &str| EgressRequest::new(Method::GET, format!("{url}{QUERY}"));
    for (host, rule) in [
        (
            format!("s3cret.attacker.com:{port}/v1"),
            Rule::HostNotListed,
        ),
        (format!("cdn.example.com:{port}/v1"), Rule::HostNotListed),
        (
            format!("evilcdn.example.com:{port}/v1"),
            Rule::HostNotListed,
        ),
        (
            format!("api.example.com.attacker.com:{port}/v1"),
            Rule::HostNotListed,
        ),
        (format!("127.0.0.1:{port}/v1"), Rule::HostNotListed),
        (format!("api.example.com:{port}/v2"), Rule::PathNotListed),
    ] {
        let refusal = refused(&guard, get(&format!("http://{host}")), &policy).await;
        assert_eq!((refusal.rule, refusal.sent), (rule, false), "{host}");
    }
    let post = EgressRequest::new(Method::POST, format!("http://api.example.com:{port}/v1"));
    assert_eq!(
        refused(&guard, post, &policy).await.rule,
        Rule::MethodNotListed
    );
    assert_eq!((lookups.load(Ordering::SeqCst), upstream.count()), (0, 0));

    upstream.will(Reply::new(200));
    upstream.will(Reply::redirect(
        302,
        &format!("http://attacker.com:{port}/v1"),
    ));
    let listed = format!("http://API.example.com.:{port}/v1/x");
    fetched(&guard, get(&listed), &policy).await;
    let refusal = refused(&guard, get(&listed), &policy).await;
    assert_eq!(
        (refusal.stage, refusal.rule),
        (EgressStage::Redirect, Rule::HostNotListed)
    );
    assert_eq!(lookups.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_operator_can_exempt_a_host_at_a_port_or_a_network_and_nothing_else_is() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::new(200));
    let port = upstream.address().port();
    let guard = guard_where_all_is(PUBLIC);
    let get = |host: &str| EgressRequest::new(Method::GET, format!("http://{host}/"));
    let exempt = |what: &str| EgressPolicy {
        exemptions: vec![what.parse().expect("an exemption")],
        ..EgressPolicy::http()
    };
    for host in [
        format!("127.0.0.1:{port}"),
        format!("page.internal:{port}"),
        format!("page:{port}"),
    ] {
        let policy = exempt(&host);
        assert_eq!(fetched(&guard, get(&host), &policy).await.status, 200);
        // Another port of it, and another spelling.
        let other = get(host.split(':').next().expect("a host"));
        assert!(!refused(&guard, other, &policy).await.sent);
        assert!(
            !refused(&guard, get(&format!("127.0.0.2:{port}")), &policy)
                .await
                .sent
        );
    }
    // A network covers neither ports, nor names that are no public host's.
    let network = exempt("127.0.0.1/32");
    let refusal = refused(&guard, get(&format!("127.0.0.1:{port}")), &network).await;
    assert_eq!(refusal.rule, Rule::Port(port));
    assert_eq!(
        refused(&guard, get("page.internal"), &network).await.stage,
        EgressStage::Host
    );
}

#[tokio::test]
async fn a_redirect_takes_no_body_elsewhere_and_may_turn_a_post_into_a_get() {
    let upstream = Upstream::start().await;
    let port = upstream.address().port();
    let guard = guard_where_all_is(PUBLIC);
    let policy = policy(&[port]);
    let post = || EgressRequest {
        headers: vec![("content-type".into(), "text/plain".into())],
        body: "a body".into(),
        ..EgressRequest::new(Method::POST, format!("http://api.example.com:{port}/a"))
    };
    upstream.will(Reply::redirect(
        308,
        &format!("http://other.example.com:{port}/b"),
    ));
    assert_eq!(
        refused(&guard, post(), &policy).await.rule,
        Rule::BodyElsewhere
    );
    assert_eq!(upstream.next_request().await.body, "a body");
    for (status, method, body) in [(308, "POST", "a body"), (303, "GET", ""), (302, "GET", "")] {
        upstream
            .will(Reply::redirect(status, "/b"))
            .will(Reply::new(200));
        fetched(&guard, post(), &policy).await;
        upstream.next_request().await;
        let followed = upstream.next_request().await;
        assert_eq!(
            (&*followed.method, &followed.body[..]),
            (method, body.as_bytes())
        );
        assert_eq!(followed.header("content-type").is_some(), method == "POST");
    }
    for _ in 0..4 {
        upstream.will(Reply::redirect(307, "/again"));
    }
    assert_eq!(
        refused(&guard, post(), &policy).await.rule,
        Rule::TooManyRedirects
    );
}

#[tokio::test]
async fn g4_what_is_compressed_is_refused_unread_and_none_was_asked_for() {
    let upstream = Upstream::start().await;
    let port = upstream.address().port();
    let guard = guard_where_all_is(PUBLIC);
    let policy = policy(&[port]);
    for encoding in ["gzip", "br", "deflate", "zstd", "gzip, br", "GZIP"] {
        // The headers are enough: the body never arrives.
        let bomb = Reply::new(200).header("content-encoding", encoding);
        upstream.will(bomb.body(vec![0; 64 << 10]).silent_after(16));
        let request = EgressRequest::new(Method::GET, format!("http://example.com:{port}/{QUERY}"));
        let refusal = refused(&guard, request, &policy).await;
        assert_eq!(
            (refusal.rule, refusal.sent),
            (Rule::Encoded, true),
            "{encoding}"
        );
        let asked = upstream.next_request().await;
        assert_eq!(asked.header("accept-encoding"), Some("identity"));
        upstream.until_hung_up().await;
    }
}

#[tokio::test]
async fn g4_an_answer_without_end_is_cut_at_its_bytes_and_at_its_time() {
    let upstream = Upstream::start().await;
    let port = upstream.address().port();
    let guard = guard_where_all_is(PUBLIC);
    let get = || EgressRequest::new(Method::GET, format!("http://example.com:{port}/{QUERY}"));
    let bytes = EgressPolicy {
        max_bytes: 1_000,
        ..policy(&[port])
    };
    for (endless, length, truncated) in [
        (Reply::drip(Duration::ZERO), 1_000, true),
        // Declared, and far from complete.
        (
            Reply::new(200)
                .body(vec![b'.'; 1 << 20])
                .silent_after(2_000),
            1_000,
            true,
        ),
        (Reply::new(200).body(vec![b'.'; 1_000]), 1_000, false),
        (Reply::new(200).body(vec![b'.'; 1_001]), 1_000, true),
    ] {
        upstream.will(endless);
        let answer = fetched(&guard, get(), &bytes).await;
        assert_eq!((answer.body.len(), answer.truncated), (length, truncated));
        upstream.until_closed().await;
    }
    let soon = EgressPolicy {
        timeout: Duration::from_millis(300),
        ..policy(&[port])
    };
    let slowly = Duration::from_millis(50);
    for endless in [
        Reply::drip(slowly),
        Reply::drip_head(slowly),
        Reply::never(),
    ] {
        upstream.will(endless);
        let refusal = refused(&guard, get(), &soon).await;
        assert_eq!(refusal.kind(), RefusalKind::Timeout, "{refusal}");
        upstream.until_closed().await;
    }
    // Endless headers at full speed.
    upstream.will(Reply::raw(format!(
        "HTTP/1.1 200 OK\r\nx: {}",
        "x".repeat(1 << 20)
    )));
    assert_eq!(
        refused(&guard, get(), &policy(&[port])).await.rule,
        Rule::BrokeOff
    );
    // Redirects with slow bodies are followed without the bodies.
    upstream.will(
        Reply::redirect(302, "/b")
            .body(vec![b'.'; 1 << 20])
            .silent_after(10),
    );
    upstream.will(Reply::new(200).body("end"));
    assert_eq!(fetched(&guard, get(), &policy(&[port])).await.body, "end");
}

#[tokio::test]
async fn silence_of_a_resolver_or_a_server_ends_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = silent.local_addr().expect("a bound socket").port();
    let soon = EgressPolicy {
        timeout: Duration::from_millis(100),
        ..policy(&[port])
    };
    let get = || EgressRequest::new(Method::GET, format!("https://example.com:{port}/{QUERY}"));
    let nobody = guard(Resolver::new(|_| std::future::pending()));
    let refusal = refused(&nobody, get(), &soon).await;
    assert_eq!(
        (refusal.rule, refusal.sent),
        (Rule::TimedOut(EgressStage::Dns), false)
    );
    // The server accepts, and never completes the handshake.
    let refusal = refused(&guard_where_all_is(PUBLIC), get(), &soon).await;
    assert_eq!(
        (refusal.rule, refusal.sent),
        (Rule::TimedOut(EgressStage::Connect), false)
    );
    drop(silent);
    let refusal = refused(&guard_where_all_is(PUBLIC), get(), &policy(&[port])).await;
    assert_eq!((refusal.rule, refusal.sent), (Rule::Unreachable, false));
}

/// With the dot at its end, the machine's search list cannot change the name.
#[tokio::test]
async fn names_are_looked_up_as_absolute_unless_the_operator_has_exempted_them() {
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let names = Arc::clone(&asked);
    let guard = guard(Resolver::new(move |name| {
        names.lock().expect("no panic").push(name);
        async { Ok(Vec::new()) }
    }));
    let policy = EgressPolicy {
        exemptions: vec!["page.svc.cluster:8080".parse().expect("an exemption")],
        ..EgressPolicy::http()
    };
    for url in [
        "https://api.example.com/",
        "https://API.Example.com./",
        "http://page.svc.cluster:8080/",
    ] {
        let refusal = refused(
            &guard,
            EgressRequest::new(Method::GET, url.to_owned()),
            &policy,
        )
        .await;
        assert_eq!(refusal.rule, Rule::Unresolved, "{url}");
    }
    assert_eq!(
        *asked.lock().expect("no panic"),
        ["api.example.com.", "api.example.com.", "page.svc.cluster"]
    );
}

/// An exclusion covers a name, the names below it, and each of its addresses.
#[tokio::test]
async fn denied_hosts_are_excluded_from_those_that_are_listed() {
    let guard = guard_where_all_is(PUBLIC);
    let policy = EgressPolicy {
        denied_hosts: [
            "*.bank.example.com",
            "bank.example.com",
            "192.0.43.8",
            "[2606:4700::1]",
        ]
        .map(|host| host.parse().expect("a host"))
        .to_vec(),
        ..policy(&[])
    };
    for url in [
        "https://bank.example.com/",
        "https://a.b.bank.example.com/",
        "https://BANK.example.com./",
        "https://192.0.43.8/",
        "https://[2606:4700::1]/",
    ] {
        let refusal = refused(
            &guard,
            EgressRequest::new(Method::GET, url.to_owned()),
            &policy,
        )
        .await;
        assert_eq!(
            (refusal.rule, refusal.sent),
            (Rule::HostDenied, false),
            "{url}"
        );
    }
    let address = EgressPolicy {
        denied_hosts: vec![PUBLIC.to_string().parse().expect("an address")],
        ..policy
    };
    let get = EgressRequest::new(Method::GET, "https://example.com/".to_owned());
    let refusal = refused(&guard, get, &address).await;
    assert_eq!((refusal.rule, refusal.sent), (Rule::HostDenied, false));
}

#[tokio::test]
async fn the_systems_resolver_answers_and_its_answers_are_vetted() {
    let guard = guard(Resolver::system());
    let upstream = Upstream::start().await;
    upstream.always(Reply::new(200));
    let port = upstream.address().port();
    let host = format!("localhost:{port}");
    let exempt = EgressPolicy {
        exemptions: vec![host.parse().expect("an exemption")],
        ..EgressPolicy::http()
    };
    let get = || EgressRequest::new(Method::GET, format!("http://{host}/"));
    assert_eq!(fetched(&guard, get(), &exempt).await.status, 200);
    assert_eq!(
        refused(&guard, get(), &policy(&[port])).await.stage,
        EgressStage::Host
    );
}
