//! Secrets at a reload: a file that is missing, empty or half written takes nothing out of service.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::issuer::SigningKey;
use tests::{Gateway, Reply, Upstream, chat};

use crate::cli::Served;

const SECRET: &str = "canary-secret-0123456789abcdef";

const TAKEN_UP: &str = "reloaded the configuration of the catalog";
const NOT_TAKEN_UP: &str = "the new configuration is invalid, and the previous one stays active";

/// A secret of a configuration.
struct SecretFile {
    path: PathBuf,
    contents: String,
    /// The setting that the error names.
    setting: &'static str,
    /// Whether weir can tell that the first third is not the secret.
    shows_part: bool,
}

impl SecretFile {
    fn write(&self, contents: &str) {
        fs::write(&self.path, contents).expect("the folder can be written");
    }
}

/// A configuration with each kind of secret that a reload reads, and the secrets.
fn configuration(upstream: &Upstream, folder: &Path) -> (String, Vec<SecretFile>) {
    let account = json!({
        "type": "service_account",
        "client_email": "weir@project.iam.gserviceaccount.com",
        "private_key": SigningKey::generate("key-1", "RS256").private_pem(),
        "token_uri": "https://oauth2.googleapis.com/token",
    });
    let account = account.to_string();
    let base = upstream.base_url();
    let mut secrets = Vec::new();
    let mut secret = |name: &str, setting, contents: &str, shows_part| {
        let path = folder.join(name);
        let source = format!("{{ file = {path:?} }}");
        let file = SecretFile {
            path,
            contents: contents.to_owned(),
            setting,
            shows_part,
        };
        file.write(contents);
        secrets.push(file);
        source
    };
    let provider = |name: &str, credential: &str| {
        format!(
            "[providers.{name}]\nadapter = \"openai\"\nbase_url = \"{base}\"\n{credential}\n\
             [models.{name}]\ncontext_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 100\n\
             upstreams = [{{ provider = \"{name}\" }}]\nprice = {{ input = 1, output = 2 }}\n"
        )
    };
    let fixed = secret("fixed", "providers.fixed", SECRET, true);
    let pool = [
        secret("pool-1", "providers.pool", &format!("{SECRET}-1"), true),
        secret("pool-2", "providers.pool", &format!("{SECRET}-2"), true),
    ];
    let oauth = secret("oauth", "providers.oauth", SECRET, false);
    let google = secret("google", "providers.google", &account, true);
    let entra = secret("entra", "providers.entra", SECRET, false);
    let aws = [
        secret("aws-id", "providers.aws", "AKIDEXAMPLE", false),
        secret("aws-key", "providers.aws", SECRET, false),
        secret("aws-token", "providers.aws", SECRET, false),
    ];
    let tool = secret("tool", "credentials.crm", SECRET, true);
    let mcp = secret("mcp", "mcp.docs", SECRET, true);
    let toml = [
        "default_catalog = false\n".to_owned(),
        provider("fixed", &format!("credential = {fixed}")),
        provider("pool", &format!("credentials = [{}]", pool.join(", "))),
        provider(
            "oauth",
            &format!(
                "credential = {{ oauth = {{ token_url = \"https://issuer.example/token\", client_id = \"weir\", client_secret = {oauth} }} }}"
            ),
        ),
        provider(
            "google",
            &format!("credential = {{ google = {{ service_account = {google} }} }}"),
        ),
        provider(
            "entra",
            &format!(
                "credential = {{ entra = {{ tenant = \"tenant-1\", client_id = \"app-1\", client_secret = {entra} }} }}"
            ),
        ),
        provider(
            "aws",
            &format!(
                "credential = {{ aws = {{ region = \"eu-central-1\", access_key_id = {}, secret_access_key = {}, session_token = {} }} }}",
                aws[0], aws[1], aws[2]
            ),
        ),
        format!("[credentials.crm]\norigin = \"https://crm.example\"\nsecret = {tool}\n"),
        format!(
            "[mcp.docs]\nurl = \"https://docs.example/mcp\"\ntools = [\"search\"]\ncredential = {mcp}\n"
        ),
    ];
    (toml.concat(), secrets)
}

/// Sends SIGHUP, and returns the line of its outcome.
async fn reload(served: &Served) -> String {
    let outcomes = |log: &str| -> Vec<String> {
        let outcomes = log
            .lines()
            .filter(|line| line.contains(TAKEN_UP) || line.contains(NOT_TAKEN_UP));
        outcomes.map(str::to_owned).collect()
    };
    let before = outcomes(&served.log()).len();
    served.signal("HUP");
    tests::patiently(async {
        loop {
            if let Some(line) = outcomes(&served.log()).get(before) {
                return line.clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

async fn has_failed_metric(served: &Served) -> bool {
    let metrics = served.client().get("/metrics").await.text();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("weir_config_reload_failed "));
    line.expect("a metric") == "1"
}

async fn models(served: &Served) -> Value {
    served.client().get("/models").await.json()
}

/// Asks the model `fixed`, and checks the credential of the request.
async fn ask(served: &Served, upstream: &Upstream, credential: &str) {
    upstream.will(Reply::chat("hi"));
    let answer = served.client().post("/chat", &chat("fixed", "x")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = upstream.next_request().await;
    let expected = format!("Bearer {credential}");
    assert_eq!(sent.header("authorization"), Some(&*expected));
}

#[tokio::test]
async fn an_unusable_secret_at_a_reload_leaves_the_old_one_active() {
    let upstream = Upstream::start().await;
    let secrets = TempDir::new().expect("a folder");
    let (toml, secrets) = configuration(&upstream, secrets.path());
    let served = Served::configured(&toml);
    let before = models(&served).await;
    for file in &secrets {
        let part = &file.contents[..file.contents.len() / 3];
        let states = [None, Some(""), Some(" \n"), Some(part)];
        for state in states.into_iter().take(3 + usize::from(file.shows_part)) {
            match state {
                None => fs::remove_file(&file.path).expect("it is there"),
                Some(contents) => file.write(contents),
            }
            let line = reload(&served).await;
            let place = format!(
                "{} {state:?}: {line}\n{}",
                file.path.display(),
                served.log()
            );
            assert!(
                line.contains("ERROR") && line.contains(NOT_TAKEN_UP),
                "{place}"
            );
            assert!(served.log().contains(file.setting), "{place}");
            if state.is_some_and(|text| text.trim().is_empty()) {
                let path = file.path.display();
                let empty = format!("the file {path} is empty");
                assert!(served.log().contains(&empty), "{place}");
            }
            assert!(has_failed_metric(&served).await, "{place}");
            assert_eq!(models(&served).await, before, "{place}");
            ask(&served, &upstream, SECRET).await;
        }
        file.write(&file.contents);
        let line = reload(&served).await;
        assert!(line.contains(TAKEN_UP), "{line}");
        assert!(!has_failed_metric(&served).await, "{}", file.path.display());
    }
    // A new secret is taken up.
    let renewed = format!("{SECRET}-renewed");
    secrets[0].write(&renewed);
    assert!(reload(&served).await.contains(TAKEN_UP));
    ask(&served, &upstream, &renewed).await;
    assert!(!served.log().contains(SECRET), "{}", served.log());
}

/// A reload does not read these: their settings take effect at the next start.
#[tokio::test]
async fn secrets_that_only_a_start_reads_may_be_away_at_a_reload() {
    let upstream = Upstream::start().await;
    let folder = TempDir::new().expect("a folder");
    let source = |name: &str| {
        let path = folder.path().join(name);
        let contents = match name {
            "payment" => "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned(),
            _ => SECRET.repeat(2),
        };
        fs::write(&path, contents).expect("the folder can be written");
        format!("{{ file = {path:?} }}")
    };
    let (toml, _) = configuration(&upstream, folder.path());
    let names = ["sealing", "pepper", "webhook", "payment", "collector"];
    let [sealing, pepper, webhook, payment, collector] = names.map(source);
    let served = Served::configured(&format!(
        "webhook_key = {webhook}\n\
         sealing_keys = [{{ id = 1, key = {sealing} }}]\n\
         api_key_peppers = [{{ version = 1, pepper = {pepper} }}]\n\
         {toml}\n\
         [payments]\nnotice_url = \"https://notices.example/\"\nnotice_secret = {payment}\n\
         [telemetry]\notlp_endpoint = \"http://127.0.0.1:9\"\notlp_headers = {{ authorization = {collector} }}\n"
    ));
    for name in names {
        fs::remove_file(folder.path().join(name)).expect("it is there");
    }
    let line = reload(&served).await;
    assert!(line.contains(TAKEN_UP), "{line}");
    assert!(!has_failed_metric(&served).await);
    ask(&served, &upstream, SECRET).await;
}

#[tokio::test]
async fn the_token_for_metrics_is_checked_at_a_reload() {
    let folder = TempDir::new().expect("a folder");
    let (token, contents) = (folder.path().join("token"), SECRET.repeat(2));
    fs::write(&token, &contents).expect("the folder can be written");
    let served = Served::configured(&format!("metrics_token_file = {token:?}\n"));
    for state in [Some(""), Some("short"), None] {
        match state {
            None => fs::remove_file(&token).expect("it is there"),
            Some(state) => fs::write(&token, state).expect("it can be written"),
        }
        let line = reload(&served).await;
        assert!(line.contains(NOT_TAKEN_UP), "{state:?}: {line}");
        assert!(has_failed_metric(&served).await);
        fs::write(&token, &contents).expect("it can be written");
        assert!(reload(&served).await.contains(TAKEN_UP));
        assert!(!has_failed_metric(&served).await);
    }
}

/// A change of the catalog layer builds the catalog anew, and reads the secrets.
#[tokio::test]
async fn an_unusable_secret_refuses_changes_of_the_catalog_layer() {
    let upstream = Upstream::start().await;
    let folder = TempDir::new().expect("a folder");
    let (toml, secrets) = configuration(&upstream, folder.path());
    let tables = toml.replace("default_catalog = false\n", "");
    let gateway = Gateway::builder().tables(&tables).start().await;
    let admin = gateway.admin("root").await;
    let change = async |version: i64| {
        let contents =
            json!({ "models": { "fixed": { "price": { "input": 10, "output": version + 20 } } } });
        let body = json!({ "base_version": version, "contents": contents });
        let json = Some("application/json");
        let path = "/admin/catalog/layer";
        let body = body.to_string().into();
        admin.send(Method::PUT, path, json, body).await
    };
    let serves = async || {
        upstream.will(Reply::chat("hi"));
        gateway.chat("fixed", "hello").await.status.as_u16()
    };
    assert_eq!(change(0).await.status, 200);
    secrets[0].write("");
    let error = change(1).await.error(400, "INVALID_REQUEST");
    let message = error["message"].as_str().expect("a text");
    assert!(message.contains("providers.fixed"), "{message}");
    assert!(message.contains("has lost its credential"), "{message}");
    assert_eq!(serves().await, 200);
    secrets[0].write(SECRET);
    assert_eq!(change(1).await.status, 200);
    assert_eq!(serves().await, 200);
}
