//! Credentials that weir obtains and renews, each against a server of its issuer's shape, and signatures of requests.
//!
//! Shapes: RFC 6749 §4.4; google-auth 2.62, azure-identity 1.27 and botocore 1.44.5 for Python.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::gateway::Builder;
use tests::upstream::Request;
use tests::{Gateway, Reply, SigningKey, Upstream, chat};
use tokio::task::JoinSet;
use weir_upstream::credential::settings::CredentialSettings;
use weir_upstream::credential::{Authorization, Credential};

const SECRET: &str = "secret-of-the-client-0123456789";

/// A gateway whose model `cloud` is at an upstream with this credential, and further settings of its provider.
fn cloud(upstream: &Upstream, adapter: &str, settings: &str) -> Builder {
    Gateway::builder().tables(&format!(
        "[providers.cloud]\nadapter = {adapter:?}\nbase_url = \"{}\"\n{settings}\n\
         [models.cloud]\ncontext_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 100\n\
         price = {{ input = 1, output = 2 }}\nupstreams = [{{ provider = \"cloud\" }}]\n",
        upstream.base_url(),
    ))
}

async fn served() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("served"));
    upstream
}

/// A token server: each token has its number, and this lifetime in seconds.
async fn token_server(expires_in: u64) -> Upstream {
    let (server, made) = (Upstream::start().await, AtomicUsize::new(0));
    server.always_by(move |_| {
        let number = made.fetch_add(1, Ordering::Relaxed);
        token(number, expires_in)
    });
    server
}

fn token(number: usize, expires_in: u64) -> Reply {
    let token = format!("token-{number}-0123456789abcdef");
    let body = json!({ "access_token": token, "token_type": "Bearer", "expires_in": expires_in });
    Reply::json(200, &body)
}

fn secret_file(folder: &TempDir, name: &str, text: &str) -> String {
    let file = folder.path().join(name);
    fs::write(&file, text).expect("the folder can be written");
    format!("{{ file = {file:?} }}")
}

/// The settings of OAuth's client credentials at a token server.
fn oauth(folder: &TempDir, server: &Upstream) -> String {
    format!(
        "credential = {{ oauth = {{ token_url = \"{}/token\", client_id = \"weir\", client_secret = {}, scope = \"models\" }} }}",
        server.base_url(),
        secret_file(folder, "client", SECRET),
    )
}

fn form(request: &Request) -> BTreeMap<String, String> {
    url::form_urlencoded::parse(&request.body)
        .into_owned()
        .collect()
}

fn bearer(request: &Request) -> &str {
    let sent = request
        .header("authorization")
        .expect("it has a credential");
    sent.strip_prefix("Bearer ").expect("a bearer token")
}

#[tokio::test]
async fn requests_at_once_share_one_token_of_the_oauth_server() {
    let folder = TempDir::new().expect("a folder");
    let (upstream, server) = (served().await, token_server(3_600).await);
    let gateway = cloud(&upstream, "openai", &oauth(&folder, &server));
    let gateway = gateway.start().await;
    let mut requests = JoinSet::new();
    for _ in 0..20 {
        let client = gateway.client();
        requests.spawn(async move { client.post("/chat", &chat("cloud", "x")).await.status });
    }
    let statuses = requests.join_all().await;
    assert_eq!(statuses, [200; 20]);
    let asked = server.requests();
    assert_eq!(asked.len(), 1);
    let expected = [
        ("client_id", "weir"),
        ("client_secret", SECRET),
        ("grant_type", "client_credentials"),
        ("scope", "models"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(form(&asked[0]), BTreeMap::from(expected));
    for request in upstream.requests() {
        assert_eq!(bearer(&request), "token-0-0123456789abcdef");
    }
}

/// Tokens of 2 s are renewed after 1.6 s.
#[tokio::test(flavor = "multi_thread")]
async fn an_ending_token_is_renewed_once_while_requests_go_on() {
    let folder = TempDir::new().expect("a folder");
    let (upstream, server) = (served().await, token_server(2).await);
    let gateway = cloud(&upstream, "openai", &oauth(&folder, &server)).credits(100_000);
    let gateway = gateway.start().await;
    let until = Instant::now() + Duration::from_secs(4);
    let mut clients = JoinSet::new();
    for _ in 0..8 {
        let client = gateway.client();
        clients.spawn(async move {
            let mut served = 0;
            while Instant::now() < until {
                let answer = client.post("/chat", &chat("cloud", "x")).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                served += 1;
            }
            served
        });
    }
    let served: usize = clients.join_all().await.into_iter().sum();
    let used = upstream.requests();
    let mut tokens: Vec<_> = used.iter().map(bearer).collect();
    tokens.sort_unstable();
    tokens.dedup();
    // One at the start and one in each 1.6 s, and one more on a slow machine.
    assert!((2..=4).contains(&server.count()), "{}", server.count());
    assert!(tokens.len() <= server.count(), "{tokens:?}");
    assert!(served >= 50, "{served}");
}

#[tokio::test]
async fn a_token_serves_until_its_end_if_it_cannot_be_renewed() {
    let folder = TempDir::new().expect("a folder");
    let (upstream, server) = (served().await, Upstream::start().await);
    server.will(token(0, 3));
    server.always(Reply::error(500, "down"));
    let gateway = cloud(&upstream, "openai", &oauth(&folder, &server));
    let gateway = gateway.start().await;
    let began = Instant::now();
    let refused = loop {
        let answer = gateway.client().post("/chat", &chat("cloud", "x")).await;
        if answer.status != 200 {
            break answer;
        }
    };
    assert!(began.elapsed() >= Duration::from_millis(2_900));
    assert_eq!(refused.status, 503);
    assert_eq!(refused.json()["error"]["code"], "UPSTREAM_UNAVAILABLE");
    assert!(refused.headers.contains_key("retry-after"));
    assert!(!refused.text().contains(SECRET), "{}", refused.text());
    // The renewal, and one attempt after the end: a failure counts for a while.
    assert_eq!(server.count(), 3);
}

#[tokio::test]
async fn no_token_comes_back_with_a_response() {
    let folder = TempDir::new().expect("a folder");
    let (upstream, server) = (Upstream::start().await, token_server(3_600).await);
    upstream.always_by(|request| Reply::chat(bearer(request)));
    let gateway = cloud(&upstream, "openai", &oauth(&folder, &server));
    let gateway = gateway.start().await;
    let answer = gateway.client().post("/chat", &chat("cloud", "x")).await;
    assert_eq!(
        answer.content(),
        "*".repeat("token-0-0123456789abcdef".len())
    );
}

#[tokio::test]
async fn a_service_account_of_google_signs_for_its_token() {
    let folder = TempDir::new().expect("a folder");
    let (upstream, server) = (served().await, token_server(3_600).await);
    let key = SigningKey::generate("key-1", "RS256");
    let token_uri = format!("{}/token", server.base_url());
    let account = json!({
        "type": "service_account",
        "client_email": "weir@project.iam.gserviceaccount.com",
        "private_key": key.private_pem(),
        "private_key_id": "key-1",
        "token_uri": token_uri,
    });
    let source = secret_file(&folder, "account", &account.to_string());
    let settings = format!("credential = {{ google = {{ service_account = {source} }} }}");
    let gateway = cloud(&upstream, "openai", &settings).start().await;
    let answer = gateway.client().post("/chat", &chat("cloud", "x")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(bearer(&upstream.requests()[0]), "token-0-0123456789abcdef");
    let form = form(&server.requests()[0]);
    assert_eq!(
        form["grant_type"],
        "urn:ietf:params:oauth:grant-type:jwt-bearer"
    );
    let assertion = &form["assertion"];
    assert!(key.has_signed(assertion));
    let part = |index: usize| -> Value {
        let text = assertion.split('.').nth(index).expect("three parts");
        let json = URL_SAFE_NO_PAD.decode(text).expect("it is Base64");
        serde_json::from_slice(&json).expect("it is JSON")
    };
    assert_eq!(part(0)["kid"], "key-1");
    let claims = part(1);
    assert_eq!(claims["iss"], "weir@project.iam.gserviceaccount.com");
    assert_eq!(claims["aud"], token_uri);
    assert_eq!(
        claims["scope"],
        "https://www.googleapis.com/auth/cloud-platform"
    );
    let lifetime = claims["exp"].as_u64().zip(claims["iat"].as_u64());
    assert_eq!(lifetime.map(|(exp, iat)| exp - iat), Some(3_600));
}

#[tokio::test]
async fn an_application_of_entra_proves_itself_by_a_secret_or_an_assertion() {
    let folder = TempDir::new().expect("a folder");
    let assertion = folder.path().join("assertion");
    fs::write(&assertion, "signed.assertion.one\n").expect("the folder can be written");
    let secret = secret_file(&folder, "client", SECRET);
    for (proof, name, value) in [
        (format!("client_secret = {secret}"), "client_secret", SECRET),
        (
            format!("assertion_file = {assertion:?}"),
            "client_assertion",
            "signed.assertion.one",
        ),
    ] {
        let (upstream, server) = (served().await, token_server(3_600).await);
        let settings = format!(
            "credential = {{ entra = {{ authority = \"{}\", tenant = \"tenant-1\", client_id = \"app-1\", {proof} }} }}\n\
             credential_slot = {{ header = \"x-entra-token\" }}",
            server.base_url(),
        );
        let gateway = cloud(&upstream, "openai", &settings).start().await;
        let answer = gateway.client().post("/chat", &chat("cloud", "x")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let sent = &upstream.requests()[0];
        assert_eq!(
            sent.header("x-entra-token"),
            Some("token-0-0123456789abcdef")
        );
        assert_eq!(sent.header("authorization"), None);
        let asked = &server.requests()[0];
        assert!(
            asked.path.ends_with("/tenant-1/oauth2/v2.0/token"),
            "{}",
            asked.path
        );
        let form = form(asked);
        assert_eq!(form[name], value);
        assert_eq!(form["client_id"], "app-1");
        assert_eq!(form["grant_type"], "client_credentials");
        assert_eq!(
            form["scope"],
            "https://cognitiveservices.azure.com/.default"
        );
    }
}

#[tokio::test]
async fn aws_keys_sign_requests_and_stay_here() {
    let folder = TempDir::new().expect("a folder");
    let upstream = served().await;
    let settings = format!(
        "credential = {{ aws = {{ region = \"eu-central-1\", access_key_id = {}, secret_access_key = {} }} }}",
        secret_file(&folder, "id", "AKIDEXAMPLE01234"),
        secret_file(&folder, "secret", SECRET),
    );
    let gateway = cloud(&upstream, "openai", &settings).start().await;
    let answer = gateway.client().post("/chat", &chat("cloud", "x")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = &upstream.requests()[0];
    let date = sent.header("x-amz-date").expect("it is dated");
    let signed = sent.header("authorization").expect("it is signed");
    let scope = format!(
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE01234/{}/eu-central-1/bedrock/aws4_request, SignedHeaders=",
        &date[..8]
    );
    assert!(signed.starts_with(&scope), "{signed}");
    let head = String::from_utf8_lossy(&sent.head);
    assert!(!head.contains(SECRET), "{head}");
    assert_eq!(sent.headers_named("host").count(), 1);
}

/// Reads a credential of these settings in this environment.
fn credential(settings: &Value, environment: &[(&str, String)]) -> Credential {
    let settings: CredentialSettings =
        serde_json::from_value(settings.clone()).expect("they are valid");
    let environment: BTreeMap<_, _> = environment.iter().cloned().collect();
    let credential = settings.read(|name| environment.get(name).cloned());
    credential.expect("it can be read")
}

async fn shown(credential: &Credential) -> Option<String> {
    let authorization = credential.authorize().await.expect("it is authorized");
    authorization.shown().map(str::to_owned)
}

#[tokio::test]
async fn machines_in_clouds_get_tokens_of_their_metadata_services() {
    let server = token_server(3_600).await;
    let address = server.address().to_string();
    let environment = [("GCE_METADATA_HOST", address.clone())];
    let google = credential(&json!({ "google": {} }), &environment);
    assert_eq!(
        shown(&google).await.as_deref(),
        Some("token-0-0123456789abcdef")
    );
    let asked = &server.requests()[0];
    assert_eq!(
        asked.path,
        "/computeMetadata/v1/instance/service-accounts/default/token"
    );
    assert_eq!(asked.header("metadata-flavor"), Some("Google"));

    let environment = [(
        "AZURE_POD_IDENTITY_AUTHORITY_HOST",
        format!("http://{address}"),
    )];
    let azure = credential(&json!({ "entra": { "client_id": "mine" } }), &environment);
    assert_eq!(
        shown(&azure).await.as_deref(),
        Some("token-1-0123456789abcdef")
    );
    let asked = &server.requests()[1];
    assert_eq!(
        asked.path,
        "/metadata/identity/oauth2/token?api-version=2018-02-01\
         &resource=https%3A%2F%2Fcognitiveservices.azure.com&client_id=mine"
    );
    assert_eq!(asked.header("metadata"), Some("true"));

    // Neither service is asked at another machine without TLS.
    let settings: CredentialSettings =
        serde_json::from_value(json!({ "google": {} })).expect("they are valid");
    let refused = settings.read(|_| Some("metadata.example".to_owned()));
    assert!(refused.is_err_and(|why| why.contains("GCE_METADATA_HOST")));
}

#[tokio::test]
async fn aws_keys_come_from_a_web_identity_a_container_or_the_machine() {
    let folder = TempDir::new().expect("a folder");
    let identity = folder.path().join("identity");
    fs::write(&identity, "identity.of.the.pod").expect("the folder can be written");
    let server = Upstream::start().await;
    let keys = json!({
        "AccessKeyId": "ASIAEXAMPLE01234",
        "SecretAccessKey": SECRET,
        "Token": "session-token-0123456789",
        "Expiration": "2099-01-01T00:00:00Z",
    });
    server.always_by(move |request| match &*request.path {
        "/" => Reply::new(200).body(format!(
            "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
             <AccessKeyId>ASIAEXAMPLE01234</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>\
             <SessionToken>session-token-0123456789</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>\
             </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
        )),
        "/latest/api/token" => Reply::new(200).body("metadata-token"),
        "/latest/meta-data/iam/security-credentials/" => Reply::new(200).body("role-1"),
        _ => Reply::json(200, &keys),
    });
    let base = format!("http://{}", server.address());
    let settings = json!({ "aws": { "region": "us-east-1" } });
    for environment in [
        vec![
            (
                "AWS_WEB_IDENTITY_TOKEN_FILE",
                identity.display().to_string(),
            ),
            ("AWS_ROLE_ARN", "arn:aws:iam::1:role/weir".to_owned()),
            ("AWS_ENDPOINT_URL_STS", format!("{base}/")),
        ],
        vec![
            (
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                format!("{base}/container"),
            ),
            (
                "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                "container-token".to_owned(),
            ),
        ],
        vec![("AWS_EC2_METADATA_SERVICE_ENDPOINT", base.clone())],
    ] {
        let credential = credential(&settings, &environment);
        let authorization = credential.authorize().await.expect("it is authorized");
        assert!(matches!(authorization, Authorization::Aws(..)));
        assert_eq!(authorization.shown(), Some("session-token-0123456789"));
        assert_eq!(authorization.for_slot(), None);
        let printed = format!("{authorization:?}");
        assert!(!printed.contains(SECRET), "{printed}");
    }
    let asked = server.requests();
    let form = form(&asked[0]);
    assert_eq!(form["Action"], "AssumeRoleWithWebIdentity");
    assert_eq!(form["RoleArn"], "arn:aws:iam::1:role/weir");
    assert_eq!(form["WebIdentityToken"], "identity.of.the.pod");
    assert_eq!(asked[1].header("authorization"), Some("container-token"));
    assert_eq!(asked[2].method, "PUT");
    for request in &asked[3..5] {
        let token = request.header("x-aws-ec2-metadata-token");
        assert_eq!(token, Some("metadata-token"));
    }
    assert!(asked[4].path.ends_with("/security-credentials/role-1"));
}

#[tokio::test]
async fn faults_of_a_credential_are_named_without_it() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("secret");
    fs::write(&file, SECRET).expect("the folder can be written");
    let source = json!({ "file": file });
    let oauth = |token_url: &str, client_secret: Value| json!({ "oauth": { "token_url": token_url, "client_id": "weir", "client_secret": client_secret } });
    for (settings, named) in [
        (oauth("http://tokens.example/", source.clone()), "token_url"),
        (oauth("https://tokens.example/", json!(SECRET)), "oauth"),
        (
            json!({ "google": { "service_account": source } }),
            "google.service_account",
        ),
        (
            json!({ "entra": { "client_id": "app", "client_secret": source } }),
            "entra.tenant",
        ),
        (
            json!({ "aws": { "region": "eu-central-1", "access_key_id": source } }),
            "secret_access_key",
        ),
        (json!({ "aws": {} }), "region"),
        (json!(SECRET), "source"),
    ] {
        let parsed: Result<CredentialSettings, _> = serde_json::from_value(settings.clone());
        let error = match parsed {
            Ok(settings) => settings.read(|_| None).expect_err("it is refused"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(named), "{settings}: {error}");
        assert!(!error.contains(SECRET), "{error}");
    }
    let upstream = served().await;
    let gateway = cloud(
        &upstream,
        "openai",
        "credential_slot = { header = \"host\" }",
    );
    let error = gateway.try_start().await.err().expect("it is refused");
    let error = format!("{error:#}");
    assert!(error.contains("providers.cloud.credential_slot"), "{error}");
}
