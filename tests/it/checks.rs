//! `weir check` and `weir serve` accept the same configurations.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use tests::{Gateway, Reply, Upstream, guests};

use crate::cli::{run, text, weir};
use crate::operate::{Running, fail, folder, succeed};

/// A model that this provider serves.
const MODEL: &str = "[models.m]\ncontext_window = 1000\nmax_output_tokens = 100\ndefault_output_tokens = 100\n\
                     upstreams = [{ provider = \"p\" }]\nprice = { input = 1, output = 2 }\n";

/// Returns a port without a listener.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

#[test]
fn what_check_refuses_serve_refuses_in_the_same_words() {
    let secret = "api_key_peppers = [{ version = 1, pepper = { file = \"pepper\" } }]\n";
    for (toml, part) in [
        (
            "api_key_peppers = [{ version = 1, pepper = { env = \"NO_SUCH_PEPPER\" } }]\n".to_owned(),
            "`api_key_peppers`: the pepper of version 1: the environment variable NO_SUCH_PEPPER is not set",
        ),
        (secret.to_owned(), "`api_key_peppers`: the pepper of version 1 has less than 32 bytes"),
        (
            "sealing_keys = [{ id = 1, key = { file = \"gone\" } }]\n".to_owned(),
            "`sealing_keys`: the sealing key of id 1: the file cannot be read",
        ),
        (
            "dev = false\n[identity.outgoing.client_credentials]\ntoken_url = \"https://id.example/token\"\n\
             client_id = \"weir\"\nclient_secret = { env = \"NO_SUCH_SECRET\" }\n"
                .to_owned(),
            "NO_SUCH_SECRET is not set",
        ),
        (
            format!(
                "[providers.p]\nadapter = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1\"\n\
                 options = {{ stream-usage = \"maybe\" }}\n{MODEL}"
            ),
            "providers.p.options.stream-usage: ",
        ),
        (
            format!(
                "[providers.p]\nadapter = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1/chat/completions/\"\n{MODEL}"
            ),
            "providers.p.base_url: ends in /chat/completions, which the adapter appends itself",
        ),
        (
            "[tools.crm_lookup]\ncredentials = [\"crm\"]\n".to_owned(),
            "`tools.crm_lookup.credentials` names \"crm\", but `credentials.crm` does not exist",
        ),
        ("listen = \"no.such.name.invalid:80\"\n".to_owned(), "`listen` is no.such.name.invalid:80: "),
        ("listen = \"localhost\"\n".to_owned(), "must be an address or a name, and a port"),
    ] {
        let folder = folder(&toml);
        std::fs::write(folder.path().join("pepper"), "short").expect("the folder can be written");
        // The gateway listens on its own port before it reads secrets.
        let serve: &[&str] = match toml.starts_with("listen") {
            true => &["serve"],
            false => &["serve", "--listen", "127.0.0.1:0"],
        };
        for command in [&["check"], serve] {
            let complaint = fail(folder.path(), command);
            assert!(complaint.contains(part), "{command:?}: {complaint}");
        }
    }
}

/// Components that an operator has installed in the running gateway do not count as missing.
#[test]
fn check_asks_the_running_gateway_for_its_plugins() {
    let folder = folder(&format!(
        "default_catalog = false\n[providers.demo]\nadapter = \"demo\"\n\
         [providers.p]\nadapter = \"acme\"\nbase_url = \"http://127.0.0.1:9\"\n{MODEL}"
    ));
    let folder = folder.path();
    let _running = Running::start(folder);
    let refused = fail(folder, &["check", "--strict"]);
    assert!(refused.contains("providers left out: 1"), "{refused}");
    std::fs::write(folder.join("acme.wasm"), guests::answering("aa")).expect("a file");
    let install = [
        "plugin",
        "install",
        "acme.wasm",
        "--slot",
        "acme",
        "--activate",
    ];
    succeed(folder, &install);
    let told = succeed(folder, &["check", "--strict"]);
    let found = "provider p has its adapter acme from the running gateway";
    assert!(told.contains(found) && !told.contains("left out"), "{told}");
    assert!(told.contains("1 models can be served"), "{told}");
}

#[test]
fn what_lacks_a_credential_or_an_adapter_is_left_out_by_both_and_refused_when_strict() {
    let folder = folder(&format!(
        "dev = false\n[providers.p]\nadapter = \"acme\"\nbase_url = \"http://127.0.0.1:9\"\n{MODEL}\
         [tools.crm_lookup]\ncredentials = [\"crm\"]\n\
         [credentials.crm]\norigin = \"https://crm.example\"\nsecret = {{ env = \"NO_SUCH_TOKEN\" }}\n"
    ));
    let folder = folder.path();
    let told = succeed(folder, &["check"]);
    let missing = "the adapter \"acme\" is not installed; the provider becomes available after";
    assert!(
        told.contains(&format!("provider p is left out: {missing}")),
        "{told}"
    );
    assert!(told.contains("and its models: m"), "{told}");
    assert!(told.contains("OPENAI_API_KEY is not set"), "{told}");
    let gap = "credential crm is missing: the environment variable NO_SUCH_TOKEN is not set";
    assert!(told.contains(gap), "{told}");
    assert!(told.contains("tools.crm_lookup has no tool yet"), "{told}");
    assert!(told.contains("0 models can be served"), "{told}");
    let strict = fail(folder, &["check", "--strict"]);
    assert!(
        strict.contains("providers left out: 4; missing credentials: 1"),
        "{strict}"
    );
    let log = Running::start(folder).stop();
    let line = log.lines().find(|line| line.contains("adapter \"acme\""));
    assert!(line.is_some_and(|line| line.contains("ERROR")), "{log}");
}

#[tokio::test]
async fn a_provider_comes_in_when_its_adapter_is_installed() {
    let gateway = Gateway::builder()
        .provider("late", "late", None)
        .model("late", &["late"])
        .start()
        .await;
    let listed = async || {
        gateway
            .client()
            .get("/models")
            .await
            .text()
            .contains("\"late\"")
    };
    assert!(!listed().await);
    let answer = gateway.chat("late", "hello").await;
    answer.error(400, "UNKNOWN_MODEL");
    let admin = gateway.admin("olivia").await;
    let component = guests::answering("aa");
    let path = "/admin/plugins/late?activate=true";
    let installed = admin.put_component(path, &component).await;
    assert_eq!(installed.status, 201, "{}", installed.text());
    assert!(listed().await);
    assert_eq!(gateway.chat("late", "hello").await.content(), "aa");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_names_whatever_it_reaches_for_with_what_came_of_it() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::chat("unused"));
    let nobody = free_port();
    let toml = format!(
        "dev = true\ndatabase_url = \"postgres://weir:s3cret@127.0.0.1:{nobody}/weir\"\n\
         redis_url = \"redis://127.0.0.1:{nobody}\"\ndefault_catalog = false\n\
         [identity.web]\nissuer = \"http://127.0.0.1:{nobody}\"\naudience = \"a\"\n\
         [identity.attestation]\nissuer = \"http://127.0.0.1:{nobody}\"\naudience = \"b\"\n\
         [[identity.sign_in]]\nname = \"People\"\nissuer = \"http://127.0.0.1:{nobody}/people\"\nclient_id = \"c\"\n\
         [providers.p]\nadapter = \"openai\"\nbase_url = \"{}\"\n{MODEL}",
        upstream.base_url()
    );
    let folder = folder(&toml);
    let path = folder.path().to_owned();
    let output = tokio::task::spawn_blocking(move || run(&path, &["check", "--probe"]));
    let output = output.await.expect("it runs");
    let told = text(&output.stdout);
    assert!(!output.status.success(), "{told}");
    for (what, how) in [
        (
            format!("database postgres://weir:****@127.0.0.1:{nobody}/weir: "),
            "Connection refused",
        ),
        (
            format!("cache redis://127.0.0.1:{nobody}: "),
            "Connection refused",
        ),
        (
            format!("issuer of web users http://127.0.0.1:{nobody}: "),
            "Connection refused",
        ),
        (
            format!("issuer of attestations http://127.0.0.1:{nobody}: "),
            "Connection refused",
        ),
        (
            format!("issuer of people http://127.0.0.1:{nobody}/people: "),
            "Connection refused",
        ),
        (
            format!("provider p {}: ", upstream.base_url()),
            "reached; it responds with ",
        ),
    ] {
        let line = told.lines().find(|line| line.starts_with(&what));
        assert!(
            line.is_some_and(|line| line.contains(how)),
            "{what}: {told}"
        );
    }
    assert!(
        text(&output.stderr).contains("unreachable or unsuitable: 5"),
        "{output:?}"
    );
}

#[test]
fn check_asks_for_upgrades_to_be_invoiced_at_once() {
    let folder = folder(
        "[payments]\nprocessor = \"stripe\"\nsecret_key = { file = \"key\" }\nwebhook_secrets = [{ file = \"key\" }]\n",
    );
    std::fs::write(folder.path().join("key"), "sk_test_0123456789abcdef").expect("a file");
    let told = succeed(folder.path(), &["check"]);
    let advice = told.lines().find(|line| line.starts_with("Payments: "));
    assert!(
        advice.is_some_and(|line| line.contains("`always_invoice`")),
        "{told}"
    );
}

/// Returns the first line of a gateway's log that contains this.
fn first_line(folder: &Path, part: &str) -> String {
    let mut child = weir(folder)
        .arg("serve")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir runs");
    let stderr = BufReader::new(child.stderr.take().expect("piped"));
    let mut log = String::new();
    let mut found = None;
    for line in stderr.lines() {
        let line = line.expect("text");
        if line.contains(part) {
            found = Some(line);
            break;
        }
        log += &line;
    }
    let _ = child.kill();
    let _ = child.wait();
    found.unwrap_or_else(|| panic!("it ended: {log}"))
}

#[test]
fn a_database_that_is_down_is_said_to_refuse_connections() {
    let toml = format!(
        "dev = true\nlisten = \"127.0.0.1:0\"\ndatabase_url = \"postgres://weir@127.0.0.1:{}/weir\"\n",
        free_port()
    );
    let folder = folder(&toml);
    let line = first_line(folder.path(), "the database is not available");
    assert!(line.contains("Connection refused"), "{line}");
}

#[test]
fn names_are_listened_at() {
    let folder = folder("dev = false\nlisten = \"localhost:0\"\n");
    let ready = first_line(folder.path(), " ready");
    assert!(
        ready.contains("127.0.0.1:") || ready.contains("[::1]:"),
        "{ready}"
    );
}
