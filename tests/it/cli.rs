//! The `weir` command from its user's view.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tests::gateway::{
    copy_compiled_plugins, copy_compiled_plugins_for_user, share_compiled_plugins,
    share_compiled_plugins_with_authors,
};
use tests::{Client, Gateway, guests, weir_program};
use weir_identity::api_key::RawKey;
use weir_sandbox::Digest;

pub(crate) fn weir(folder: &Path) -> Command {
    command(&weir_program(), folder)
}

/// A weir command, of any release.
pub(crate) fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    // A developer's environment must not change the test.
    let of_ours = |name: &String| name.starts_with("WEIR_") || name.starts_with("OTEL_");
    for name in std::env::vars().map(|(name, _)| name).filter(of_ours) {
        command.env_remove(name);
    }
    for name in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"] {
        command.env_remove(name);
    }
    // The gate's lints are not for the projects that `weir plugin build` builds.
    for name in ["RUSTC_WORKSPACE_WRAPPER", "CLIPPY_ARGS"] {
        command.env_remove(name);
    }
    // A machine that is busy with other tests must not count as an outage.
    for setting in ["ACQUIRE_MS", "STATEMENT_MS", "CACHE_MS"] {
        command.env(format!("WEIR_STORES__{setting}"), "30000");
    }
    // The folders of compiled code are separate from other tests' and the developer's.
    for name in ["XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"] {
        command.env_remove(name);
    }
    command.env("HOME", folder).current_dir(folder);
    command
}

pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Output {
    weir(folder).args(arguments).output().expect("weir runs")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder for a gateway in development mode and for commands of plugin authors, which need not compile what other
/// tests have compiled.
pub(crate) fn folder_with_compiled_plugins() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    share_compiled_plugins(&folder.path().join(".weir"));
    share_compiled_plugins_with_authors(folder.path());
    folder
}

/// `weir serve` in a folder of its own, in development mode.
pub(crate) struct Served {
    child: Child,
    greeting: String,
    folder: TempDir,
}

impl Served {
    /// Starts a gateway with this configuration.
    pub(crate) fn configured(toml: &str) -> Self {
        let folder = folder_with_compiled_plugins();
        std::fs::write(folder.path().join("weir.toml"), toml).expect("the folder can be written");
        Self::start_as(weir(folder.path()), folder, &[])
    }

    /// Starts a gateway without configuration.
    fn start() -> Self {
        let folder = folder_with_compiled_plugins();
        Self::start_as(weir(folder.path()), folder, &[])
    }

    pub(crate) fn start_as(mut command: Command, folder: TempDir, arguments: &[&str]) -> Self {
        // A file, since no reader would empty a pipe while it runs.
        let log = File::create(folder.path().join("log")).expect("a file");
        let mut child = command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("weir runs");
        let mut greeting = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        // The last line of the greeting.
        while !greeting.contains("/console") {
            let read = stdout.read_line(&mut greeting).expect("text");
            let log = || std::fs::read_to_string(folder.path().join("log"));
            assert!(read > 0, "it ended: {greeting}{:?}", log());
        }
        Self {
            child,
            greeting,
            folder,
        }
    }

    fn curl(&self) -> String {
        let line = self
            .greeting
            .lines()
            .find(|line| line.contains("curl "))
            .expect("a line");
        line.trim().to_owned()
    }

    pub(crate) fn key(&self) -> String {
        let curl = self.curl();
        let from = curl.find("inf_").expect("a key");
        curl[from..].split('\'').next().expect("a key").to_owned()
    }

    /// Its working folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A client with its key.
    pub(crate) fn client(&self) -> Client {
        let address = self.url().replace("http://", "");
        Client::new(address.parse().expect("an address")).with_key(&self.key())
    }

    /// Returns its log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("text")
    }

    /// Waits for a log line that this function accepts.
    pub(crate) async fn logged(&self, is_it: impl Fn(&str) -> bool) -> String {
        tests::patiently(async {
            loop {
                if let Some(line) = self.log().lines().find(|line| is_it(line)) {
                    return line.to_owned();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }

    pub(crate) fn url(&self) -> String {
        let curl = self.curl();
        let from = curl.find("http://").expect("an address");
        curl[from..]
            .split("/v1")
            .next()
            .expect("an address")
            .to_owned()
    }

    /// Sends a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let signal = format!("-{name}");
        let signalled = Command::new("kill").args([&signal, &pid]).status();
        assert!(signalled.expect("kill runs").success());
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    /// Returns whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked").is_some()
    }

    /// Waits for its end, and returns the log and its success.
    pub(crate) fn ended(mut self) -> (String, bool) {
        let ended = self.child.wait().expect("it ends").success();
        (self.log(), ended)
    }

    /// Sends SIGTERM and returns the log and its success.
    pub(crate) fn stop(self) -> (String, bool) {
        self.terminate();
        self.ended()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_gateway_whose_log_is_on_a_full_disk_serves_on() {
    let folder = folder_with_compiled_plugins();
    let full = File::options().write(true).open("/dev/full");
    let mut child = weir(folder.path())
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(full.expect("Linux has it"))
        .spawn()
        .expect("weir runs");
    let mut greeting = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    while !greeting.contains("curl ") {
        let read = stdout.read_line(&mut greeting).expect("text");
        assert!(read > 0, "it ended: {greeting}");
    }
    let (_, url) = greeting.split_once("http://").expect("a URL");
    let address = url.split('/').next().expect("an address").parse();
    let client = Client::new(address.expect("an address"));
    // Each request has a line.
    for _ in 0..3 {
        assert_eq!(client.get("/models").await.status, 401);
    }
    let told = Command::new("kill").arg(child.id().to_string()).status();
    assert!(told.expect("kill runs").success());
    assert!(child.wait().expect("it can be waited for").success());
}

#[test]
fn a_gateway_serves_whether_its_greeting_is_read_or_not() {
    let folder = folder_with_compiled_plugins();
    let path = folder.path().join("log");
    let (unread, stdout) = std::io::pipe().expect("a pipe");
    drop(unread);
    let mut child = weir(folder.path())
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stdout(stdout)
        .stderr(File::create(&path).expect("a file"))
        .spawn()
        .expect("weir runs");
    let log = || std::fs::read_to_string(&path).expect("it is there");
    while !log().contains("ready") {
        let ended = child.try_wait().expect("it can be waited for");
        assert!(ended.is_none(), "{}", log());
        std::thread::sleep(Duration::from_millis(10));
    }
    let told = Command::new("kill").arg(child.id().to_string()).status();
    assert!(told.expect("kill runs").success());
    let ended = child.wait().expect("it can be waited for");
    assert!(ended.success(), "{}", log());
}

/// As with `weir … | head`.
#[test]
fn a_command_whose_output_nobody_reads_ends_as_it_would() {
    let folder = folder_with_compiled_plugins();
    let closed = || {
        let (unread, write) = std::io::pipe().expect("a pipe");
        drop(unread);
        write
    };
    for arguments in [
        &["plugin", "wit"][..],
        &["completions", "bash"],
        &["key", "list", "--offline"],
        &["check"],
    ] {
        let ran = weir(folder.path())
            .args(arguments)
            .stdout(closed())
            .output();
        let ran = ran.expect("weir runs");
        assert!(ran.status.success(), "{arguments:?}: {ran:?}");
        let told = text(&ran.stderr);
        assert!(
            !told.contains("panicked") && !told.contains("pipe"),
            "{told}"
        );
        let ran = weir(folder.path())
            .args(arguments)
            .stderr(closed())
            .output();
        assert!(ran.expect("weir runs").status.success(), "{arguments:?}");
    }
    // A failed write of output is a failure.
    let full = File::options()
        .write(true)
        .open("/dev/full")
        .expect("Linux has it");
    let ran = weir(folder.path())
        .args(["plugin", "wit"])
        .stdout(full)
        .output();
    let ran = ran.expect("weir runs");
    assert!(!ran.status.success(), "{ran:?}");
    assert!(text(&ran.stderr).contains("standard output"), "{ran:?}");
}

/// The port is bound before any compilation, and a client there gets the reason of the delay.
#[tokio::test]
async fn a_gateway_that_compiles_its_plugins_says_so_at_its_port() {
    let folder = tempfile::tempdir().expect("a folder");
    let demo = Digest::of(&guests::bundled("demo"));
    share_compiled_plugins(&folder.path().join(".weir"));
    let plugins = folder.path().join(".weir/cache/plugins");
    std::fs::remove_file(&plugins).expect("it is a link");
    copy_compiled_plugins(&folder.path().join(".weir"), Some(&demo));
    let path = folder.path().join("log");
    let mut child = weir(folder.path())
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::null())
        .stderr(File::create(&path).expect("a file"))
        .spawn()
        .expect("weir runs");
    let log = || std::fs::read_to_string(&path).expect("it is there");
    let address = tests::patiently(async {
        loop {
            if let Some((_, rest)) = log().split_once("address=")
                && let Some((address, _)) = rest.split_once('\n')
            {
                break address.trim().parse().expect("an address");
            }
            tokio::task::yield_now().await;
        }
    });
    let client = Client::new(address.await);
    let mut waited = Vec::new();
    tests::patiently(async {
        loop {
            let health = client.get("/health").await;
            assert_eq!(health.status, 200, "{}", health.text());
            let health = health.json();
            let ready = client.get("/health/ready").await;
            match ready.status.as_u16() {
                200 => break,
                _ => {
                    let starting = json!({ "status": "starting", "ready": false });
                    assert_eq!(health, starting);
                    assert!(ready.headers.contains_key("retry-after"));
                    let error = ready.error(503, "NOT_READY");
                    waited.push(error["message"].as_str().expect("a text").to_owned());
                }
            }
        }
    })
    .await;
    let told = waited.iter().find(|why| why.contains("It is compiling "));
    assert!(told.is_some_and(|why| why.contains("once")), "{waited:?}");
    assert!(log().contains("compiled demo: "), "{}", log());
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

/// A folder with a home and two working folders, whose user has compiled all plugins but one.
fn home_without_compiled_demo() -> (TempDir, Digest) {
    // Its link has made the folder of shared code.
    drop(folder_with_compiled_plugins());
    let demo = Digest::of(&guests::bundled("demo"));
    let home = tempfile::tempdir().expect("a folder");
    copy_compiled_plugins_for_user(home.path(), &demo);
    for folder in ["a", "b"] {
        std::fs::create_dir(home.path().join(folder)).expect("a folder");
    }
    (home, demo)
}

/// Runs `weir check` in a folder below a home, and returns its messages.
fn check_in(home: &Path, folder: &str) -> String {
    let folder = home.join(folder);
    let checked = weir(&folder).env("HOME", home).arg("check").output();
    let checked = checked.expect("weir runs");
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    text(&checked.stderr)
}

/// Returns the compiled code of a component in a folder.
fn compiled(folder: &Path, digest: &Digest) -> Option<std::path::PathBuf> {
    let mut entries = std::fs::read_dir(folder).ok()?;
    let is_its = |path: &std::path::PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy();
        name.starts_with(&digest.to_string()) && name.ends_with(".cwasm")
    };
    entries.find_map(|entry| Some(entry.expect("an entry").path()).filter(is_its))
}

#[test]
fn a_second_folder_has_the_compiled_plugins_of_the_first() {
    let (home, demo) = home_without_compiled_demo();
    let home = home.path();
    let shared = home.join(".cache/weir/bundled");
    let told = check_in(home, "a");
    assert!(told.contains("compiling 1 plugin, once"), "{told}");
    assert!(compiled(&shared, &demo).is_some());
    assert!(compiled(&home.join("a/.weir/cache/plugins"), &demo).is_none());
    let told = check_in(home, "b");
    assert!(!told.contains("compiling"), "{told}");
    let key = home.join(".local/state/weir/plugin-cache.key");
    let mode = std::fs::metadata(key).expect("a key").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Another gateway's configuration is imported without a compilation, too.
    let litellm = "model_list:\n  - model_name: m\n    litellm_params:\n      model: openai/gpt-5\n      \
                   api_key: os.environ/KEY\n";
    std::fs::write(home.join("b/config.yaml"), litellm).expect("it can be written");
    let folder = home.join("b");
    let imported = weir(&folder)
        .env("HOME", home)
        .args(["import", "litellm", "config.yaml"])
        .output()
        .expect("weir runs");
    let told = text(&imported.stderr);
    assert!(
        imported.status.success() && !told.contains("compiling"),
        "{told}"
    );
}

/// The code of the other plugins is in `data_dir`, so that only one is compiled.
#[test]
fn a_shared_folder_that_others_can_change_is_not_used() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 5] = [
        ("a group may write to it", |folder| {
            let mode = std::fs::Permissions::from_mode(0o770);
            std::fs::set_permissions(folder, mode).expect("its owner may");
        }),
        ("it is a link", |folder| {
            let elsewhere = folder.with_file_name("elsewhere");
            std::fs::rename(folder, &elsewhere).expect("it can be moved");
            std::os::unix::fs::symlink(&elsewhere, folder).expect("a link");
        }),
        ("its key can be read by others", |folder| {
            let key = folder.join("../../../.local/state/weir/plugin-cache.key");
            let mode = std::fs::Permissions::from_mode(0o644);
            std::fs::set_permissions(key, mode).expect("its owner may");
        }),
        ("a group may write to the folder of its key", |folder| {
            let keys = folder.join("../../../.local/state/weir");
            let mode = std::fs::Permissions::from_mode(0o770);
            std::fs::set_permissions(keys, mode).expect("its owner may");
        }),
        ("another user owns it", |folder| {
            std::os::unix::fs::chown(folder, Some(65_534), None).expect("root may");
        }),
    ];
    for (harm, inflict) in harms {
        if harm.starts_with("another user") && !rustix::process::geteuid().is_root() {
            continue;
        }
        let (home, demo) = home_without_compiled_demo();
        let data = home.path().join("a/.weir");
        share_compiled_plugins(&data);
        std::fs::remove_file(data.join("cache/plugins")).expect("it is a link");
        copy_compiled_plugins(&data, Some(&demo));
        let shared = home.path().join(".cache/weir/bundled");
        inflict(&shared);
        let told = check_in(home.path(), "a");
        assert!(told.contains("compiling 1 plugin, once"), "{harm}: {told}");
        assert!(compiled(&shared, &demo).is_none(), "{harm}");
        assert!(
            compiled(&data.join("cache/plugins"), &demo).is_some(),
            "{harm}"
        );
    }
}

#[test]
fn a_shared_file_that_is_no_compiled_code_is_replaced() {
    let (home, demo) = home_without_compiled_demo();
    let home = home.path();
    check_in(home, "a");
    let file = compiled(&home.join(".cache/weir/bundled"), &demo).expect("compiled code");
    let good = std::fs::read(&file).expect("it is a file");
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 4] = [
        ("its tag does not match", |file| {
            std::fs::write(file, "x".repeat(10_000)).expect("it can be written");
        }),
        // The code itself is genuine.
        ("it is a link", |file| {
            let elsewhere = file.with_file_name("elsewhere");
            std::fs::rename(file, &elsewhere).expect("it can be moved");
            std::os::unix::fs::symlink(&elsewhere, file).expect("a link");
        }),
        ("it is an endless device", |file| {
            std::fs::remove_file(file).expect("it is there");
            std::os::unix::fs::symlink("/dev/zero", file).expect("a link");
        }),
        ("it is a pipe without a writer", |file| {
            std::fs::remove_file(file).expect("it is there");
            let made = Command::new("mkfifo").arg(file).status();
            assert!(made.expect("mkfifo runs").success());
        }),
    ];
    for (harm, inflict) in harms {
        inflict(&file);
        check_in(home, "b");
        let metadata = std::fs::symlink_metadata(&file).expect("it is there");
        assert!(metadata.is_file(), "{harm}");
        assert!(std::fs::read(&file).expect("a file") == good, "{harm}");
    }
}

/// `cargo run` passes what a build script sets to the program.
#[test]
fn no_build_script_sets_a_variable_that_looks_like_a_setting() {
    for path in tests::source::files(&tests::source::root().join("host"), "rs") {
        if path.ends_with("build.rs") {
            let script = std::fs::read_to_string(&path).expect("text");
            assert!(!script.contains("rustc-env=WEIR_"), "{}", path.display());
        }
    }
}

#[test]
fn a_variable_that_names_no_setting_is_a_warning_once() {
    let folder = folder_with_compiled_plugins();
    let checked = weir(folder.path())
        .env("WEIR_COMMIT", "unknown")
        .args(["check", "--production"])
        .output()
        .expect("weir runs");
    let told = text(&checked.stderr);
    assert_eq!(
        told.matches("WEIR_COMMIT names no setting").count(),
        1,
        "{told}"
    );
}

/// A first start has no credentials, and one line says so. The commands that it prints run this program.
#[tokio::test]
async fn a_first_start_is_short_and_names_its_program() {
    let served = Served::start();
    let (log, program) = (served.log(), weir_program());
    assert_eq!(log.matches("left out").count(), 1, "{log}");
    let line = log.lines().find(|line| line.contains("left out"));
    let line = line.expect("it is there");
    assert!(line.contains("INFO") && line.len() < 500, "{line}");
    for provider in ["anthropic", "gemini", "openai"] {
        assert!(line.contains(provider), "{line}");
    }
    assert!(!log.contains("WARN"), "{log}");
    let command = format!("\n  {} swarm run --url", program.display());
    assert!(served.greeting.contains(&command), "{}", served.greeting);
}

#[tokio::test]
async fn a_credential_that_is_too_short_is_named_as_such() {
    let folder = folder_with_compiled_plugins();
    let mut command = weir(folder.path());
    command.env("OPENAI_API_KEY", "short");
    let served = Served::start_as(command, folder, &[]);
    let why = "its credential has fewer than";
    let line = served.logged(|line| line.contains(why)).await;
    assert!(line.contains("WARN") && line.contains("openai"), "{line}");
    let asked = tests::chat("gpt-5", "x");
    let error = served.client().post("/chat", &asked).await.json();
    let message = error["error"]["message"].as_str().expect("a text");
    assert!(message.contains("OPENAI_API_KEY is set, but"), "{message}");
    assert!(message.contains(why), "{message}");
    assert!(!message.contains("Set the environment"), "{message}");
    assert!(!message.contains("short\""), "{message}");
    let checked = weir(served.folder())
        .env("OPENAI_API_KEY", "short")
        .arg("check")
        .output();
    let told = text(&checked.expect("weir runs").stdout);
    assert!(
        told.contains("provider openai is left out: its credential has fewer than"),
        "{told}"
    );
}

/// A stop at that time need not wait for the compiler.
#[test]
fn a_port_that_is_taken_is_told_of_at_once() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(folder.path(), &["serve", "--listen", &address]);
    assert!(!output.status.success());
    let told = text(&output.stderr);
    assert!(
        told.contains(&format!("cannot listen on {address}")),
        "{told}"
    );
    assert!(!told.contains("compiling"), "{told}");
}

#[tokio::test]
async fn in_development_an_unknown_model_names_the_variable_that_would_bring_it() {
    let served = Served::start();
    let client = served.client();
    let remedy = "Set the environment variable OPENAI_API_KEY and restart weir";
    for path in ["/chat", "/v1/chat/completions", "/v1/messages"] {
        let mut chat = tests::chat("gpt-5", "Hello");
        chat["max_tokens"] = 10.into();
        let answer = client.post(path, &chat).await.json();
        let message = answer["error"]["message"].as_str().expect("a text");
        assert!(message.contains(remedy), "{path}: {message}");
        chat["model"] = "no-such-model".into();
        let answer = client.post(path, &chat).await.json();
        let message = answer["error"]["message"].as_str().expect("a text");
        assert!(
            !message.contains("environment variable"),
            "{path}: {message}"
        );
    }
    // Strangers do not see a gateway's faults.
    let gateway = Gateway::builder().settings("dev = false").start().await;
    let answer = gateway
        .client()
        .post("/chat", &tests::chat("gpt-5", "Hello"))
        .await;
    let error = answer.error(400, "UNKNOWN_MODEL");
    assert!(!error["message"].to_string().contains("OPENAI"), "{error}");
}

#[test]
fn zero_configuration_prints_a_request_that_works() {
    // An empty folder: weir compiles its plugins.
    let folder = tempfile::tempdir().expect("a folder");
    let served = Served::start_as(weir(folder.path()), folder, &[]);
    let output = Command::new("bash")
        .arg("-c")
        .arg(served.curl())
        .output()
        .expect("bash runs");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(
        answer["choices"][0]["message"]["content"],
        "You said: Hello, weir!"
    );
    let (folder, key) = (served.folder.path().to_owned(), served.key());
    let mode = |path: std::path::PathBuf| {
        std::fs::metadata(path)
            .expect("it exists")
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(folder.join(".weir")), 0o700);
    assert_eq!(mode(folder.join(".weir/keys/api-key-pepper")), 0o600);
    let (log, success) = served.stop();
    assert!(success, "{log}");
    let left_out =
        "left out: their environment variables are not set, and `weir check` names them providers=";
    assert!(log.contains(left_out), "{log}");
    assert!(!log.contains(&key[8..]), "the key is in the log: {log}");
}

#[test]
fn a_key_made_beside_a_running_gateway_works_at_once() {
    let served = Served::start();
    let made = run(served.folder.path(), &["key", "create", "--user", "bob"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let key = text(&made.stdout).trim().to_owned();
    assert!(key.starts_with("inf_"), "{key}");
    let header = format!("X-Api-Key: {key}");
    let models = format!("{}/models", served.url());
    let curl = Command::new("curl")
        .args(["-sf", "-H", &header, &models])
        .output()
        .expect("curl runs");
    assert!(curl.status.success(), "{curl:?}");
}

#[test]
fn a_second_gateway_on_the_same_folder_is_refused() {
    let served = Served::start();
    let second = run(served.folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
    assert!(!second.status.success());
    assert!(
        text(&second.stderr).contains("another weir is serving"),
        "{}",
        text(&second.stderr)
    );
}

/// A client continues to work after a restart of the gateway.
#[test]
fn the_development_key_is_the_same_in_one_data_folder_and_in_no_other() {
    let shared = folder_with_compiled_plugins();
    let serve = |path: &Path| {
        let place = tempfile::tempdir().expect("a folder");
        let mut command = weir(place.path());
        command.env("WEIR_DATA_DIR", path.join(".weir"));
        Served::start_as(command, place, &[])
    };
    let first = serve(shared.path());
    let key = first.key();
    drop(first);
    let second = serve(shared.path());
    assert_eq!(second.key(), key);
    let log = std::fs::read_to_string(second.folder.path().join("log")).expect("a log");
    assert!(!log.contains(&key[8..]), "{log}");
    let file = shared.path().join(".weir/keys/development-api-key");
    let mode = std::fs::metadata(&file)
        .expect("a file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let id = RawKey::parse(&key).expect("a key").id().to_owned();
    let revoke = |served: &Served| {
        let mut command = weir(served.folder.path());
        command.env("WEIR_DATA_DIR", shared.path().join(".weir"));
        command
            .args(["key", "revoke", &id])
            .output()
            .expect("weir runs")
    };
    let revoked = revoke(&second);
    assert!(revoked.status.success(), "{}", text(&revoked.stderr));
    drop(second);
    let third = serve(shared.path());
    assert_ne!(third.key(), key, "what was revoked stays so");
    let elsewhere = folder_with_compiled_plugins();
    assert_ne!(serve(elsewhere.path()).key(), third.key());
}

#[test]
fn development_mode_does_not_listen_for_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let served = run(folder.path(), &["serve", "--listen", "0.0.0.0:0"]);
    assert!(!served.status.success());
    assert!(
        text(&served.stderr).contains("dev = false"),
        "{}",
        text(&served.stderr)
    );
}

#[test]
fn check_says_what_is_wrong_and_where() {
    let folder = folder_with_compiled_plugins();
    let check = |toml: &str| {
        std::fs::write(folder.path().join("weir.toml"), toml).expect("the file can be written");
        run(folder.path(), &["check"])
    };
    let sound = check("listen = \"127.0.0.1:8081\"\n");
    assert!(sound.status.success(), "{}", text(&sound.stderr));
    assert!(
        text(&sound.stdout).contains("7 models can be served"),
        "{}",
        text(&sound.stdout)
    );
    assert!(
        text(&sound.stdout).contains("OPENAI_API_KEY is not set"),
        "{}",
        text(&sound.stdout)
    );

    // The component may be installed in the gateway's database.
    let elsewhere = check("[providers.a]\nadapter = \"acme\"\nbase_url = \"http://x\"\n");
    assert!(elsewhere.status.success(), "{}", text(&elsewhere.stderr));
    assert!(
        text(&elsewhere.stdout)
            .contains("provider a is left out: the adapter \"acme\" is not installed"),
        "{}",
        text(&elsewhere.stdout)
    );

    let bad = check(
        "[providers.b]\nadapter = \"openai\"\nbase_url = \"ftp://x\"\noptions = { speed = \"fast\" }\n\
         [providers.c]\nadapter = \"openai\"\n\
         [providers.d]\nadapter = \"demo\"\ncredential = { env = \"X\" }\n\
         [models.\"gpt-5\"]\nmax_output_tokens = 500000\n\
         [models.m]\ncontext_window = 10\nmax_output_tokens = 20\ndefault_output_tokens = 30\n\
         upstreams = [{ provider = \"x\" }]\nprice = { input = 1 }\n",
    );
    assert!(!bad.status.success());
    let complaint = text(&bad.stderr);
    for part in [
        "providers.b.base_url: ",
        "providers.b.options.speed: ",
        "providers.c.base_url: is missing",
        "providers.d.credential: the adapter \"demo\" uses no credential",
        "models.\"gpt-5\".max_output_tokens: is more than context_window (the entry is built in, ",
        "models.\"m\".default_output_tokens: is more than max_output_tokens",
        "models.\"m\".max_output_tokens: is more than context_window",
        "models.\"m\".upstreams[0].provider: the provider \"x\" does not exist",
    ] {
        assert!(complaint.contains(part), "{part:?} is not in: {complaint}");
    }
    assert!(
        !complaint.contains("\"m\".max_output_tokens: is more than context_window ("),
        "{complaint}"
    );

    let bad = check(
        "listen = \"0.0.0.0:80\"\n[limits]\nconcurrent_requests = 8193\n\
         [plugins.limits]\nmemory_bytes = 268435457\n",
    );
    assert!(!bad.status.success());
    let complaint = text(&bad.stderr);
    for part in [
        "`listen` is 0.0.0.0:80",
        "`limits.concurrent_requests` is 8193",
        "`plugins.limits.memory_bytes` is 268435457",
    ] {
        assert!(complaint.contains(part), "{part:?} is not in: {complaint}");
    }

    for (toml, part) in [
        ("[models.x]\nname = \"X\"\n", "\"models.x\" in weir.toml"),
        ("lisen = 1\n", "lisen"),
        ("listen = \"nowhere\"\n", "listen"),
        ("[limits]\nbody_bytes = \"many\"\n", "limits.body_bytes"),
        (
            "[limits]\nbody_timeout_ms = 0\n",
            "`limits.body_timeout_ms`: invalid value signed int `0`, expected a nonzero u64",
        ),
        ("[timeouts]\nidle_ms = 0\n", "timeouts.idle_ms"),
        (
            "[plugins.limits]\ncall_bytes = 0\n",
            "expected a nonzero usize for key \"plugins.limits.call_bytes\" in weir.toml",
        ),
        (
            "[providers.demo]\ntimeouts = { first_byte_ms = 0 }\n",
            "providers.demo.timeouts.first_byte_ms",
        ),
        (
            "database_url = \"mysql://a:b@c/d\"\n",
            "sqlite: or postgres://",
        ),
        ("redis_url = \"localhost:6379\"\n", "redis:// or rediss://"),
        ("redis_url = \"redis://localhost\"\n", "`dev = false`"),
        ("database_url = \"postgres://a:b@c/d\"\n", "`--dev`"),
        (
            "[identity.service]\nissuer = \"https://id.example\"\naudience = \"api\"\n\
             allowed_emails = [\"a@b.example\"]\n",
            "`identity.service` is set, which is unusual in development mode",
        ),
        (
            "[[identity.sign_in]]\nname = \"A\"\nissuer = \"https://id.example\"\nclient_id = \"c\"\n",
            "`identity.sign_in` is set, which is unusual in development mode",
        ),
        (
            "dev = false\n[[identity.sign_in]]\nname = \"A\"\nissuer = \"http://127.0.0.1:1\"\nclient_id = \"c\"\n",
            "`identity.sign_in[0].issuer` must begin with https://",
        ),
        (
            "dev = false\n[[identity.sign_in]]\nname = \"A\"\nissuer = \"https://id.example\"\nclient_id = \"c\"\n\
             client_secret = { env = \"NO_SUCH_SECRET\" }\n",
            "NO_SUCH_SECRET is not set",
        ),
        ("internal_listen = \"0.0.0.0:1\"\n", "`internal_listen`"),
        (
            "metrics_token_file = \"/nowhere/token\"\n",
            "`metrics_token_file`",
        ),
        (
            "metrics_token_file = \"/dev/null\"\n",
            "`metrics_token_file`",
        ),
        (
            "api_key_peppers = [{ version = 0, pepper = { env = \"P\" } }]\n",
            "`api_key_peppers[0].version`",
        ),
        (
            "dev = false\ndatabase_url = \"postgres://a:b@c/d\"\n",
            "`api_key_peppers` is not set",
        ),
        (
            "dev = false\ndatabase_url = \"postgres://a:b@c/d\"\n\
             api_key_peppers = [{ version = 1, pepper = { env = \"P\" } }]\n",
            "`sealing_keys` is not set",
        ),
        (
            "sealing_keys = [{ id = 1, key = { env = \"A\" } }, { id = 1, key = { env = \"B\" } }]\n",
            "`sealing_keys[1].id`",
        ),
        ("[models.demo]\nprice = { input = -1 }\n", "price"),
    ] {
        let bad = check(toml);
        assert!(!bad.status.success(), "{toml}");
        assert!(
            text(&bad.stderr).contains(part),
            "{part:?} is not in: {}",
            text(&bad.stderr)
        );
    }
    // A secret in the place of its source.
    for toml in [
        "api_key_peppers = [{ version = 1, pepper = \"canary\" }]\n",
        "sealing_keys = [{ id = 1, key = \"canary\" }]\n",
        "[providers.demo]\ncredential = \"canary\"\n",
        "[providers.demo]\ncredential = { value = \"canary\" }\n",
    ] {
        let told = text(&check(toml).stderr);
        assert!(
            told.contains("{ file = ") && !told.contains("canary"),
            "{told}"
        );
    }
}

#[test]
fn no_error_in_a_configuration_quotes_what_may_be_a_secret() {
    let folder = folder_with_compiled_plugins();
    let file = folder.path().join("weir.toml");
    for (toml, part) in [
        // Invalid UTF-8 makes the complete file unreadable.
        (
            "api_key_peppers = [{ version = 1, pepper = canary }]\n",
            "line 1, column 44",
        ),
        ("sealing_keys = [{ id = 1, key = \"canary }]\n", "line 1"),
        ("api_key_peppers = \"canary\"\n", "api_key_peppers"),
        (
            "sealing_keys = [{ id = \"canary\", key = { env = \"A\" } }]\n",
            "sealing_keys.0.id",
        ),
        ("[providers]\ndemo = \"canary\"\n", "providers.demo"),
        ("[providers.demo]\ncredential = [\"canary\"]\n", "{ file ="),
        ("database_url = [\"canary\"]\n", "database_url"),
        ("database_url = \"postgres://a:canary\"\n", "database_url"),
        ("redis_url = \"canary\"\n", "redis_url"),
    ] {
        std::fs::write(&file, toml).expect("the file can be written");
        let bad = run(folder.path(), &["check"]);
        let told = text(&bad.stdout) + &text(&bad.stderr);
        assert!(!bad.status.success(), "{toml}");
        assert!(
            told.contains(part) && !told.contains("canary"),
            "{toml}{told}"
        );
    }
    // A secret in the place of its variable's or its file's name.
    for (toml, arguments) in [
        (
            "api_key_peppers = [{ version = 1, pepper = { env = \"sk-canary-sk-canary-sk-canary-sk\" } }]\n",
            &["serve", "--listen", "127.0.0.1:0"][..],
        ),
        (
            "sealing_keys = [{ id = 1, key = { file = \"canary0123456789canary0123456789\" } }]\n",
            &["serve", "--listen", "127.0.0.1:0"],
        ),
        (
            "[providers.openai]\ncredential = { env = \"sk-canary\" }\n",
            &["check"],
        ),
    ] {
        std::fs::write(&file, toml).expect("the file can be written");
        let output = run(folder.path(), arguments);
        let told = text(&output.stdout) + &text(&output.stderr);
        assert!(told.contains("may be the secret"), "{toml}{told}");
        assert!(!told.contains("canary"), "{toml}{told}");
    }
    std::fs::write(&file, "").expect("the file can be written");
    for (name, value) in [
        ("WEIR_API_KEY_PEPPERS", "canary"),
        ("WEIR_API_KEY_PEPPERS", "[{ version = 1, pepper = canary }]"),
        ("WEIR_SEALING_KEYS", "[canary"),
        ("WEIR_REDIS_URL", "1234567890"),
        ("WEIR_PROVIDERS", "canary"),
        ("WEIR_PROVIDERS__OPENAI__CREDENTIAL", "canary"),
        ("WEIR_DATABASE_URL", "canary"),
    ] {
        let bad = weir(folder.path())
            .arg("check")
            .env(name, value)
            .output()
            .expect("weir runs");
        let told = text(&bad.stdout) + &text(&bad.stderr);
        assert!(!bad.status.success(), "{name}={value}");
        assert!(
            !told.contains("canary") && !told.contains("1234567890"),
            "{name}={value}: {told}"
        );
    }
}

#[test]
fn the_environment_overrides_the_file_and_a_missing_file_is_named() {
    let folder = folder_with_compiled_plugins();
    let missing = run(folder.path(), &["--config", "gone.toml", "check"]);
    assert!(!missing.status.success());
    assert!(
        text(&missing.stderr).contains("gone.toml"),
        "{}",
        text(&missing.stderr)
    );
    let overridden = weir(folder.path())
        .arg("check")
        .env("WEIR_TIMEOUTS__IDLE_MS", "0")
        .output()
        .expect("weir runs");
    assert!(
        text(&overridden.stderr).contains("timeouts.idle_ms"),
        "{}",
        text(&overridden.stderr)
    );
}

#[test]
fn variables_that_name_no_setting_are_ignored_and_a_slip_inside_a_table_is_not() {
    let folder = folder_with_compiled_plugins();
    let check = |name: &str, value: &str| {
        let mut check = weir(folder.path());
        check.arg("check").env(name, value).env("WEIR_LOG", "warn");
        check.output().expect("weir runs")
    };
    // The variables that Kubernetes sets for a Service called `weir`.
    for (name, value) in [
        ("WEIR_SERVICE_HOST", "10.0.0.1"),
        ("WEIR_PORT", "tcp://10.0.0.1:8080"),
        ("WEIR_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
        ("WEIR_LISTEN_PORT", "tcp://10.0.0.1:8080"),
    ] {
        let output = check(name, value);
        let told = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{told}");
        assert!(told.contains(&format!("{name} names no setting")), "{told}");
    }
    let slip = check("WEIR_LIMITS__BODYBYTES", "1");
    assert!(!slip.status.success());
    assert!(
        text(&slip.stderr).contains("bodybytes"),
        "{}",
        text(&slip.stderr)
    );
}

#[test]
fn the_local_issuer_prints_headers_in_development_mode_only() {
    let folder = tempfile::tempdir().expect("a folder");
    // No gateway accepts the token of an issuer that it does not know.
    let nowhere = run(folder.path(), &["token", "web", "--user", "al"]);
    let told = text(&nowhere.stderr);
    assert!(told.contains("no gateway runs here"), "{told}");
    assert!(!folder.path().join(".weir").exists());
    let made = run(folder.path(), &["key", "list", "--offline"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let web = run(folder.path(), &["token", "web", "--user", "al", "--admin"]);
    assert!(web.status.success(), "{}", text(&web.stderr));
    let headers = text(&web.stdout);
    let tokens: Vec<_> = headers
        .split('\'')
        .filter_map(|header| header.split_once(": "))
        .collect();
    let [
        ("Authorization", bearer),
        ("X-Identity-AppCheck", attestation),
    ] = tokens[..]
    else {
        panic!("{headers}");
    };
    let bearer = bearer.strip_prefix("Bearer ").expect("a bearer token");
    for token in [bearer, attestation] {
        assert_eq!(token.split('.').count(), 3, "{headers}");
        assert!(!text(&web.stderr).contains(token));
    }
    let arguments = [
        "token",
        "service",
        "--scope",
        "model:call",
        "--scope",
        "swarm:run",
    ];
    let service = run(folder.path(), &arguments);
    assert!(service.status.success(), "{}", text(&service.stderr));
    assert!(text(&service.stdout).starts_with("-H 'Authorization: Bearer ey"));

    std::fs::write(folder.path().join("weir.toml"), "dev = false\n").expect("it can be written");
    for arguments in [&["token", "web", "--user", "al"][..], &arguments] {
        let refused = run(folder.path(), arguments);
        assert!(!refused.status.success() && refused.stdout.is_empty());
        assert!(
            text(&refused.stderr).contains("only development mode"),
            "{}",
            text(&refused.stderr)
        );
    }
}

#[test]
fn operators_change_plans_and_credits_and_look_into_the_ledger() {
    let folder = tempfile::tempdir().expect("a folder");
    let succeed = |arguments: &[&str]| {
        let output = run(folder.path(), arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let nowhere = run(folder.path(), &["ledger", "verify"]);
    assert!(
        text(&nowhere.stderr).contains("does not exist"),
        "{nowhere:?}"
    );
    succeed(&["key", "create", "--user", "alice", "--offline"]);
    let set = succeed(&["user", "set-plan", "--user", "alice", "--plan", "guru"]);
    assert_eq!(set, "alice is on the plan guru, with 10000 credits.\n");
    let added = succeed(&["user", "top-up", "--user", "alice", "--credits", "0.5"]);
    assert_eq!(added, "alice has 0.5 credits more.\n");
    let sound = succeed(&["ledger", "verify"]);
    assert!(sound.starts_with("The ledger is consistent; "), "{sound}");
    let archived = succeed(&["ledger", "archive", "--before", "2020-01"]);
    assert!(
        archived.starts_with("Moved 0 entries from before 2020-01 to "),
        "{archived}"
    );
    for (arguments, message) in [
        (
            ["user", "top-up", "--user", "bob", "--credits", "1"],
            "User bob does not exist",
        ),
        (
            ["user", "top-up", "--user", "alice", "--credits", "0"],
            "--credits takes",
        ),
    ] {
        let output = run(folder.path(), &arguments);
        assert!(!output.status.success());
        assert!(
            text(&output.stderr).contains(message),
            "{}",
            text(&output.stderr)
        );
    }
}

/// Returns headers as `weir token` prints them, as arguments of curl.
pub(crate) fn headers(folder: &Path, arguments: &[&str]) -> Vec<String> {
    let printed = run(folder, &[&["token"], arguments].concat());
    assert!(printed.status.success(), "{}", text(&printed.stderr));
    let headers = text(&printed.stdout);
    let headers = headers.split('\'').filter(|part| part.contains(": "));
    headers
        .flat_map(|header| ["-H".to_owned(), header.to_owned()])
        .collect()
}

/// Returns the output of curl for a path of a gateway.
fn curl(served: &Served, path: &str, arguments: &[impl AsRef<std::ffi::OsStr>]) -> String {
    let output = Command::new("curl")
        .args(["-s", "--max-time", "20"])
        .args(arguments)
        .arg(format!("{}{path}", served.url()))
        .output()
        .expect("curl runs");
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

#[test]
fn an_operator_makes_and_unmakes_an_administrator() {
    let served = Served::start();
    let folder = served.folder.path();
    let user = |arguments: &[&str]| run(folder, &[&["user"], arguments].concat());
    let unknown = user(&["grant-admin", "--subject", "al"]);
    assert!(!unknown.status.success());
    assert!(
        text(&unknown.stderr).contains("weir creates users at their first request"),
        "{}",
        text(&unknown.stderr)
    );
    let unknown = user(&["grant-admin", "--user", "usr_0"]);
    assert!(text(&unknown.stderr).contains("User usr_0 does not exist"));
    assert!(!user(&["grant-admin"]).status.success());

    curl(
        &served,
        "/models",
        &headers(folder, &["web", "--user", "al"]),
    );
    let granted = user(&["grant-admin", "--subject", "al"]);
    assert!(granted.status.success(), "{}", text(&granted.stderr));
    let told = text(&granted.stdout);
    let (id, rest) = told.trim().split_once(' ').expect("a sentence");
    assert_eq!(rest, "is now an administrator.");
    let revoked = user(&["revoke-admin", "--user", id]);
    assert_eq!(
        text(&revoked.stdout).trim(),
        format!("{id} is not an administrator.")
    );
}

#[test]
fn a_proxy_that_is_not_trusted_is_warned_of_by_the_setting_that_mends_it() {
    let served = Served::start();
    let answer = curl(&served, "/models", &["-H", "X-Forwarded-For: 203.0.113.7"]);
    assert!(answer.contains("DEVELOPMENT_MODE"), "{answer}");
    let (log, _) = served.stop();
    assert!(log.contains("`trusted_proxies`"), "{log}");
}

/// Keys, tokens, peppers and credentials, valid and invalid ones, with the log at its most verbose level.
#[test]
fn no_secret_reaches_the_log_or_an_answer() {
    let folder = folder_with_compiled_plugins();
    let credential = "sk-canary-0123456789abcdef";
    std::fs::write(
        folder.path().join("weir.toml"),
        "[providers.gone]\nadapter = \"openai\"\nbase_url = \"http://127.0.0.1:9\"\n\
         credential = { env = \"CANARY\" }\n[models.gone]\ncontext_window = 1000\n\
         max_output_tokens = 100\ndefault_output_tokens = 100\nupstreams = [{ provider = \"gone\" }]\n\
         price = { input = 1, output = 2 }\n",
    )
    .expect("it can be written");
    let mut command = weir(folder.path());
    // The compiler would log gigabytes, and its input is only plugins.
    let filter =
        "trace,cranelift_codegen=off,cranelift_frontend=off,wasmtime_internal_cranelift=off";
    command.env("WEIR_LOG", filter).env("CANARY", credential);
    let served = Served::start_as(command, folder, &[]);
    let folder = served.folder.path();
    let web = headers(folder, &["web", "--user", "al"]);
    let service = headers(folder, &["service", "--scope", "model:call"]);
    let key = served.key();
    let mut typo = key.clone();
    typo.replace_range(30..31, if &key[30..31] == "x" { "y" } else { "x" });
    let header = |name: &str, value: &str| vec!["-H".to_owned(), format!("{name}: {value}")];
    let mut answers = String::new();
    for arguments in [
        header("X-Api-Key", &key),
        header("X-Api-Key", &typo),
        header("Authorization", &format!("Bearer {key}")),
        header("Authorization", &key),
        web.clone(),
        web[..2].to_vec(),
        web[2..].to_vec(),
        service.clone(),
        [&web[..2], &header("X-Identity-AppCheck", "a.b.c")].concat(),
    ] {
        answers += &curl(&served, "/models", &arguments);
    }
    let body = r#"{"model":"gone","messages":[{"role":"user","content":"prompt-canary"}]}"#;
    let chat = [
        header("X-Api-Key", &key),
        header("Content-Type", "application/json"),
        vec!["-d".to_owned(), body.to_owned()],
    ];
    answers += &curl(&served, "/chat", &chat.concat());
    assert!(
        answers.contains("UNAUTHENTICATED") && answers.contains("UPSTREAM_"),
        "{answers}"
    );
    answers += &curl(&served, &format!("/api-keys/{key}"), &web);
    answers += &curl(&served, &format!("/{key}"), &web);
    let pepper = std::fs::read(folder.join(".weir/keys/api-key-pepper")).expect("a pepper");
    let (log, _) = served.stop();
    assert!(log.contains("TRACE") && log.contains("answered"), "{log}");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let token = |headers: &[String]| -> String {
        let token = headers[1].rsplit(' ').next().expect("a token");
        token.rsplit('.').next().expect("a signature").to_owned()
    };
    let secrets: [String; 9] = [
        key[16..].to_owned(),
        typo[32..].to_owned(),
        token(&web),
        token(&web[2..]),
        token(&service),
        hex(&pepper),
        format!("{pepper:?}"),
        credential.to_owned(),
        "prompt-canary".to_owned(),
    ];
    for secret in &secrets {
        assert!(!answers.contains(secret), "{secret} is in an answer");
        let line = log.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{secret} is in the log: {line:?}");
    }
}

/// Runs `weir plugin …` beside a gateway; returns its output, its errors and its success.
pub(crate) fn plugin(served: &Served, arguments: &[&str]) -> (String, String, bool) {
    let url = served.url();
    let arguments = [&["plugin"], arguments, &["--url", &url]].concat();
    let output = run(served.folder.path(), &arguments);
    (
        text(&output.stdout),
        text(&output.stderr),
        output.status.success(),
    )
}

/// The commands of the greeting work unchanged, and no request leaves this machine.
#[test]
fn a_swarm_runs_from_the_command_line_without_setup() {
    let served = Served::start();
    let url = served.url();
    let printed = format!("weir swarm run --url {url} --template 'Content Pipeline'");
    assert!(served.greeting.contains(&printed), "{}", served.greeting);
    let swarm = |arguments: &[&str]| {
        let arguments = [&["swarm"], arguments, &["--url", &url]].concat();
        let output = run(served.folder.path(), &arguments);
        (
            text(&output.stdout),
            text(&output.stderr),
            output.status.success(),
        )
    };
    let (content, lines, done) = swarm(&[
        "run",
        "--template",
        "Content Pipeline",
        "--context",
        "Of rivers.",
    ]);
    assert!(done, "{lines}");
    assert!(content.contains("Trends"), "{content}");
    let mut lines = lines.lines();
    for expected in [
        "Trend Researcher: starts on demo",
        "Trend Researcher: http_get http://127.0.0.1:",
        "Trend Researcher: completed after 2 iterations",
        "Blog Writer: starts on demo",
        "Blog Writer: completed",
        "Editor: starts on demo",
        "Editor: completed",
    ] {
        let line = lines.next().unwrap_or_default();
        assert!(line.starts_with(expected), "{line} is not {expected}");
    }
    let end = lines.next().expect("a last line").to_owned();
    assert!(end.contains("completed: 3 of 3 agents"), "{end}");
    let id = end.split(' ').next().expect("an id");

    let (list, _, done) = swarm(&["list"]);
    assert!(done && list.contains(id) && list.contains("3/3"), "{list}");
    let (shown, _, done) = swarm(&["show", id]);
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert!(
        done && shown["agents"][0]["tool_calls"][0]["tool"] == "http_get",
        "{shown}"
    );
    let (_, complaint, done) = swarm(&["cancel", id]);
    assert!(done, "one that is over stays as it is: {complaint}");

    std::fs::write(
        served.folder.path().join("swarm.json"),
        r#"{"swarm_id": "s", "agents": []}"#,
    )
    .expect("the folder can be written");
    for (arguments, expected) in [
        (
            ["run", "--template", "Nothing"],
            "the template \"Nothing\" does not exist; choose one of: Content Pipeline, ",
        ),
        (
            ["run", "swarm.json", "--context=x"],
            "INVALID_REQUEST: agents: ",
        ),
        (["run", "absent.json", "--context=x"], "absent.json"),
    ] {
        let (_, complaint, done) = swarm(&arguments);
        assert!(
            !done && complaint.contains(expected),
            "{arguments:?}: {complaint}"
        );
    }
}

#[test]
fn an_upload_says_when_the_gateway_has_the_component_and_checks_it() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("demo.wasm"), guests::bundled("demo")).expect("a file");
    let gateway = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", gateway.local_addr().expect("an address"));
    let mut install = weir(folder.path())
        .args(["plugin", "install", "demo.wasm", "--slot", "demo"])
        .args(["--url", &url])
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir runs");
    let head = |requests: &mut BufReader<&TcpStream>| {
        let lines = requests.by_ref().lines();
        let lines = lines.map(|line| line.expect("a line of the head").to_ascii_lowercase());
        lines
            .take_while(|line| !line.is_empty())
            .collect::<Vec<_>>()
    };
    let answer = |mut connection: &TcpStream, status: &str, body: &str| {
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let sent = connection.write_all(answer.as_bytes());
        sent.expect("the command waits");
    };
    let (first, _) = gateway.accept().expect("the command connects");
    assert_eq!(
        head(&mut BufReader::new(&first))[0],
        "get /admin/plugins http/1.1"
    );
    answer(&first, "200 OK", r#"{"slots":[]}"#);
    let (second, _) = gateway.accept().expect("the command connects");
    let mut requests = BufReader::new(&second);
    let put = head(&mut requests);
    let length = put
        .iter()
        .find_map(|line| line.strip_prefix("content-length: "))
        .expect("the length of the component");
    let mut component = vec![0; length.parse().expect("a number")];
    requests.read_exact(&mut component).expect("the component");

    // The gateway does not respond before this line, as if it compiled for long.
    let mut lines = BufReader::new(install.stderr.take().expect("standard error")).lines();
    let said = lines.find(|line| {
        let line = line.as_ref().expect("text");
        line == "Compiling and checking …"
    });
    assert!(said.is_some());
    answer(&second, "503 Service Unavailable", "");
    assert!(!install.wait().expect("the command ends").success());
}

#[test]
fn operators_swap_the_demo_adapter_from_the_command_line() {
    let served = Served::start();
    let demo = guests::bundled("demo");
    let bundled = Digest::of(&demo).to_string();
    let changed = guests::with_custom_section(&demo, 5);
    let digest = Digest::of(&changed).to_string();
    let file = served.folder.path().join("demo.wasm");
    std::fs::write(&file, &changed).expect("the folder can be written");
    let short = |digest: &str| digest[..12].to_owned();

    let (list, _, done) = plugin(&served, &["list"]);
    assert!(done && list.contains(&short(&bundled)), "{list}");
    let (installed, progress, done) = plugin(&served, &["install", "demo.wasm", "--slot", "demo"]);
    assert!(done && installed.contains(&digest), "{installed}{progress}");
    let (shown, _, _) = plugin(&served, &["show", "demo"]);
    let line = |digest: &str| {
        let lines = shown
            .lines()
            .filter(|line| line.starts_with(&short(digest)));
        lines.collect::<String>()
    };
    assert!(line(&bundled).contains("active"), "{shown}");
    assert!(line(&digest).contains("available"), "{shown}");
    let (shown, complaint, done) = plugin(&served, &["activate", "demo", &digest[..6], "--json"]);
    assert!(done, "{complaint}");
    let slot: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(slot["serving"], *digest);
    let (_, complaint, done) = plugin(&served, &["remove", "demo", &digest]);
    assert!(!done && complaint.contains("PLUGIN_IN_USE"), "{complaint}");
    let (rolled_back, _, done) = plugin(&served, &["rollback", "demo"]);
    assert!(
        done && rolled_back.contains(&short(&bundled)),
        "{rolled_back}"
    );
    let (_, complaint, done) = plugin(&served, &["rollback", "demo"]);
    assert!(
        !done && complaint.contains("NOTHING_TO_ROLL_BACK_TO"),
        "{complaint}"
    );

    let canary = ["activate", "demo", &digest[..8], "--share", "12.5%"];
    let (shown, complaint, done) = plugin(
        &served,
        &[&canary[..], &["--promote-after", "30m"]].concat(),
    );
    assert!(done, "{complaint}");
    let head = format!(
        "The slot demo serves with {}.\nIts canary is {}, for 12.5 % of accounts since 20",
        short(&bundled),
        short(&digest)
    );
    assert!(shown.starts_with(&head), "{shown}");
    assert!(
        shown.contains("This takes at least 100 requests and 6 groups of accounts on both sides"),
        "{shown}"
    );
    let compared = [
        "traps",
        "faults",
        "errors",
        "first token",
        "latency",
        "tokens",
        "credits",
    ];
    // Measures are listed once there are requests.
    for measure in compared {
        let is_listed = shown.lines().any(|line| line.starts_with(measure));
        assert!(!is_listed, "{shown}");
    }
    assert!(shown.contains("JUDGEMENT"), "{shown}");
    for (arguments, expected) in [
        (&["--share", "5"][..], "such as 5%"),
        (&["--share", "100%"], "such as 5%"),
        (&["--share", "5%", "--promote-after", "soon"], "such as 90s"),
        (&["--promote-after", "30m"], "--share"),
    ] {
        let (_, complaint, done) = plugin(&served, &[&canary[..3], arguments].concat());
        assert!(!done && complaint.contains(expected), "{complaint}");
    }
    let (list, _, _) = plugin(&served, &["list"]);
    let canary = format!("{} 12.5 %", short(&digest));
    assert!(list.contains(&canary), "{list}");
    let (rolled_back, _, done) = plugin(&served, &["rollback", "demo"]);
    assert!(done && !rolled_back.contains("canary"), "{rolled_back}");

    let (_, _, done) = plugin(&served, &["remove", "demo", &digest]);
    assert!(done);
    let (events, _, done) = plugin(&served, &["events", "demo", "--json"]);
    assert!(done);
    let events: serde_json::Value = serde_json::from_str(&events).expect("JSON");
    let kinds = events["events"].as_array().expect("a list").iter();
    let kinds: Vec<_> = kinds.map(|event| event["kind"].as_str()).collect();
    assert_eq!(
        kinds,
        [
            "removed",
            "canary_ended",
            "canary_started",
            "rolled_back",
            "activated",
            "installed"
        ]
        .map(Some)
    );

    std::fs::write(&file, "no component").expect("the folder can be written");
    let (_, complaint, done) = plugin(&served, &["install", "demo.wasm", "--slot", "demo"]);
    assert!(
        !done && complaint.contains("parse: not a WebAssembly"),
        "{complaint}"
    );
    let (_, complaint, done) = plugin(&served, &["show", "nothing"]);
    assert!(!done && complaint.contains("UNKNOWN_SLOT"), "{complaint}");
    let (_, complaint, done) = plugin(&served, &["activate", "demo", "abc"]);
    assert!(!done && complaint.contains("at least 4"), "{complaint}");
    let folder = served.folder.path().to_owned();
    let output = run(&folder, &["plugin", "list", "--url", "http://127.0.0.1:1"]);
    assert!(
        text(&output.stderr).contains("no gateway responds"),
        "{output:?}"
    );
    served.stop();
}
