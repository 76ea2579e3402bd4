//! Operating a gateway from its own machine: the admin socket, and the commands that use it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;

use serde_json::Value;
use tempfile::TempDir;
use tests::gateway::share_compiled_plugins;
use tests::guests;
use tests::stores::Postgres;
use weir_sandbox::Digest;

use crate::cli::{run, text, weir};

/// Activates `demo.wasm` of the folder.
const INSTALL: [&str; 6] = [
    "plugin",
    "install",
    "demo.wasm",
    "--slot",
    "demo",
    "--activate",
];

/// A `weir serve` without a greeting, in a folder with a configuration.
pub(crate) struct Running {
    child: Child,
    /// Its address.
    address: String,
    log: Option<JoinHandle<String>>,
}

impl Running {
    /// Starts a gateway, and waits until it is ready.
    pub(crate) fn start(folder: &Path) -> Self {
        Self::of(weir(folder).args(["serve", "--listen", "127.0.0.1:0"]))
    }

    /// Starts a gateway with this limit of file descriptors, as a shell's `ulimit` takes it.
    fn with_descriptors(folder: &Path, limit: &str) -> Self {
        let weir = weir(folder);
        let script = format!("ulimit {limit} && exec \"$0\" serve --listen 127.0.0.1:0");
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).arg(weir.get_program());
        shell.current_dir(folder);
        for (name, value) in weir.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        Self::of(&mut shell)
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weir runs");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut log = String::new();
        while !log.contains(" ready") {
            let read = stderr.read_line(&mut log).expect("text");
            assert!(read > 0, "it ended: {log}");
        }
        let address = log.rsplit("address=").next().expect("an address");
        let address = address.split_whitespace().next().expect("an address");
        let address = address.to_owned();
        // A thread must empty the pipe while it runs.
        let log = std::thread::spawn(move || {
            for line in stderr.lines() {
                log += &line.expect("text");
                log.push('\n');
            }
            log
        });
        Self {
            child,
            address,
            log: Some(log),
        }
    }

    /// Kills it, as a crash would.
    fn crash(mut self) {
        self.end();
    }

    /// Stops it, and returns its log.
    pub(crate) fn stop(mut self) -> String {
        self.end()
    }

    fn end(&mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = self.log.take().map(JoinHandle::join);
        log.map_or_else(String::new, |log| log.expect("text"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// A folder with a configuration.
pub(crate) fn folder(toml: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    share_compiled_plugins(&folder.path().join(".weir"));
    configure(folder.path(), toml);
    folder
}

fn configure(folder: &Path, toml: &str) {
    std::fs::write(folder.join("weir.toml"), toml).expect("the folder can be written");
}

/// Runs a command that must succeed, and returns its output.
pub(crate) fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    text(&output.stdout)
}

/// Runs a command that must fail, and returns its errors.
pub(crate) fn fail(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert!(!output.status.success(), "{arguments:?}: {output:?}");
    complaint(&output)
}

fn complaint(output: &Output) -> String {
    text(&output.stderr)
}

/// Runs a command that must succeed, and returns its JSON.
fn json(folder: &Path, arguments: &[&str]) -> Value {
    let answer = succeed(folder, &[arguments, &["--json"]].concat());
    serde_json::from_str(&answer).expect("JSON")
}

/// Creates a key, and returns it and its id.
fn create_key(folder: &Path, user: &str) -> (String, String) {
    let output = run(folder, &["key", "create", "--user", user]);
    assert!(output.status.success(), "{output:?}");
    let told = complaint(&output);
    let id = told.split(' ').find(|word| word.starts_with("key_"));
    let id = id.expect("the key's id").to_owned();
    (text(&output.stdout).trim().to_owned(), id)
}

/// Returns the status of a request for the list of models with a key, and the user's requests per minute.
fn ask(running: &Running, key: &str) -> (u16, Option<u32>) {
    let url = format!("http://{}/models", running.address);
    let header = format!("X-Api-Key: {key}");
    let arguments = ["-s", "-o", "-", "-D", "-", "-H", &header, &url];
    let output = Command::new("curl").args(arguments).output();
    let answer = text(&output.expect("curl runs").stdout);
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let policy = answer.split("ratelimit-policy: \"requests\";q=").nth(1);
    let rate = policy.and_then(|policy| policy.split(';').next()?.parse().ok());
    (status.unwrap_or_else(|| panic!("{answer}")), rate)
}

/// Returns the kinds of audit events, the newest first.
fn kinds(folder: &Path, arguments: &[&str]) -> Vec<String> {
    let events = json(folder, &[&["audit"], arguments].concat());
    let events = events["events"].as_array().expect("a list").iter();
    let kind = |event: &Value| event["kind"].as_str().expect("a text").to_owned();
    events.map(kind).collect()
}

/// An operator's usual commands: the same with a running gateway or without, on both databases.
fn operate(folder: &Path, database: &str, by: &str) {
    let (_, id) = create_key(folder, "alice");
    create_key(folder, "bob");
    let list = succeed(folder, &["key", "list", "--user", "alice"]);
    assert!(list.contains(&id) && !list.contains("bob"), "{list}");
    assert!(list.contains("active") && list.contains("inf_"), "{list}");

    let revoked = run(folder, &["key", "revoke", &id]);
    assert!(revoked.status.success(), "{revoked:?}");
    let told = complaint(&revoked);
    assert!(told.contains(&format!("Done in {database}")), "{told}");
    assert!(
        !told.contains("NOTICE") && !told.contains("already exists"),
        "{told}"
    );
    let keys = json(folder, &["key", "list", "--user", "alice"]);
    assert_eq!(keys["keys"][0]["state"], "revoked", "{keys}");
    let active = json(folder, &["key", "list", "--active"]);
    assert_eq!(active["keys"].as_array().map(Vec::len), Some(1), "{active}");
    let unknown = fail(folder, &["key", "revoke", "key_0000000000000000"]);
    assert!(unknown.contains("NOT_FOUND: key_id: No key"), "{unknown}");

    let set = ["user", "set-plan", "--user", "alice", "--plan", "guru"];
    assert_eq!(
        succeed(folder, &set),
        "alice is on the plan guru, with 10000 credits.\n"
    );
    let top_up = [
        "user",
        "top-up",
        "--user",
        "alice",
        "--credits",
        "0.5",
        "--id",
        "invoice 7",
    ];
    for _ in 0..2 {
        assert_eq!(succeed(folder, &top_up), "alice has 0.5 credits more.\n");
    }
    let other = [
        "user",
        "top-up",
        "--user",
        "alice",
        "--credits",
        "2",
        "--id",
        "invoice 7",
    ];
    assert!(fail(folder, &other).contains("ID_REUSED"));
    let alice = json(folder, &["user", "show", "--user", "alice"]);
    assert_eq!(alice["plan"], "guru");
    assert_eq!(alice["account"]["available_credits"], 10_000.5, "{alice}");
    succeed(folder, &["user", "disable", "--user", "bob"]);
    let disabled = json(folder, &["user", "list", "--disabled"]);
    assert_eq!(disabled["users"][0]["user_id"], "bob", "{disabled}");
    succeed(folder, &["user", "enable", "--user", "bob"]);
    let nobody = fail(folder, &["user", "disable", "--user", "nobody/else"]);
    assert!(
        nobody.contains("UNKNOWN_USER: user_id: User nobody/else does not exist"),
        "{nobody}"
    );

    let create = ["voucher", "create", "--credits", "5", "--name", "launch"];
    let made = json(folder, &create);
    let id = made["voucher_id"].as_str().expect("an id");
    let code = succeed(folder, &[&create[..], &["--uses", "3"]].concat());
    assert_eq!(code.trim().len(), 29, "{code}");
    assert_eq!(
        succeed(folder, &["voucher", "revoke", id]),
        format!("Revoked {id}.\n")
    );
    let vouchers = json(folder, &["voucher", "list"]);
    assert_eq!(vouchers["vouchers"][0]["uses"], 3, "{vouchers}");
    assert_eq!(vouchers["vouchers"][1]["state"], "revoked", "{vouchers}");
    assert_eq!(vouchers["vouchers"][1]["created_by"], by, "{vouchers}");
    let list = succeed(folder, &["voucher", "list"]);
    assert!(
        list.contains("launch") && !list.contains(code.trim()),
        "{list}"
    );
    let wrong = ["voucher", "create", "--credits", "5", "--uses", "0"];
    assert!(fail(folder, &wrong).contains("uses: The value must be a number from 1"));
    assert!(fail(folder, &["voucher", "revoke", "vou_0"]).contains("Voucher vou_0 does not exist"));

    let done = [
        "user.topped_up",
        "user.plan_set",
        "api_key.revoked",
        "api_key.created",
        "user.created",
    ];
    // Events within a second may be one event with a count.
    let mut seen = kinds(folder, &["--user", "alice", "--by", by]);
    seen.dedup();
    assert_eq!(seen, done);
    assert_eq!(
        kinds(folder, &["--user", "bob", "--limit", "2"]),
        ["user.enabled", "user.disabled"]
    );
    let page = json(folder, &["audit", "--limit", "2"]);
    let next = page["next"].as_str().expect("there is more");
    let rest = kinds(folder, &["--before", next]);
    let all = kinds(folder, &[]);
    assert_eq!(rest, all[2..]);
}

#[test]
fn users_and_keys_are_seen_to_with_a_gateway_and_without_one() {
    let me = |folder: &Path| {
        let owner = std::fs::metadata(folder).expect("a folder").uid();
        format!("local:{owner}")
    };
    let database = |folder: &Path| format!("sqlite:{}/.weir/weir.db", folder.display());
    let beside = folder("dev = false\n");
    let _running = Running::start(beside.path());
    operate(
        beside.path(),
        &format!("{}, by the gateway", database(beside.path())),
        &me(beside.path()),
    );
    let alone = folder("dev = false\n");
    // A mistaken command creates no database.
    let refused = fail(alone.path(), &["key", "create", "--user", "alice"]);
    assert!(refused.contains(&database(alone.path())), "{refused}");
    assert!(refused.contains("--offline"), "{refused}");
    assert!(!alone.path().join(".weir/weir.db").exists());
    succeed(alone.path(), &["key", "list", "--offline"]);
    operate(
        alone.path(),
        &format!("{}; no gateway runs", database(alone.path())),
        &me(alone.path()),
    );

    let url = tokio::runtime::Runtime::new()
        .expect("a runtime")
        .block_on(async { Postgres::shared().create_database().await });
    let on_postgres = folder(&format!(
        "dev = false\ndatabase_url = {:?}\n\
         api_key_peppers = [{{ version = 1, pepper = {{ file = \"secret\" }} }}]\n\
         sealing_keys = [{{ id = 1, key = {{ file = \"secret\" }} }}]\n",
        url.expose()
    ));
    std::fs::write(
        on_postgres.path().join("secret"),
        "0123456789abcdef0123456789abcdef",
    )
    .expect("the folder can be written");
    operate(on_postgres.path(), "postgres://", &me(on_postgres.path()));
}

#[test]
fn what_an_operator_changes_is_so_at_once_for_a_key_that_the_gateway_knows() {
    let folder = folder("dev = false\ntrusted_proxies = []\n");
    let folder = folder.path();
    let running = Running::start(folder);
    let (key, id) = create_key(folder, "alice");
    for _ in 0..2 {
        assert_eq!(ask(&running, &key), (200, Some(60)));
    }
    succeed(
        folder,
        &["user", "set-plan", "--user", "alice", "--plan", "pro"],
    );
    assert_eq!(ask(&running, &key), (200, Some(1_000)));
    succeed(folder, &["user", "disable", "--user", "alice"]);
    assert_eq!(ask(&running, &key).0, 403);
    succeed(folder, &["user", "enable", "--user", "alice"]);
    assert_eq!(ask(&running, &key), (200, Some(1_000)));
    succeed(folder, &["key", "revoke", &id]);
    assert_eq!(ask(&running, &key).0, 401);
}

#[test]
fn an_operator_lets_in_again_whom_failed_proofs_have_shut_out() {
    let folder = folder("dev = false\ntrusted_proxies = []\n");
    let folder = folder.path();
    let running = Running::start(folder);
    let (key, _) = create_key(folder, "alice");
    let listed = || succeed(folder, &["lockout", "list"]);
    assert!(!listed().contains("127.0.0.1"), "{}", listed());
    let statuses: Vec<_> = (0..11).map(|_| ask(&running, "inf_wrong").0).collect();
    assert_eq!(statuses, [[401; 10].as_slice(), &[429]].concat());
    assert_eq!(ask(&running, &key).0, 429);
    assert!(listed().contains("127.0.0.1"), "{}", listed());
    let all = json(folder, &["lockout", "list"]);
    assert_eq!(all["lockouts"][0]["address"], "127.0.0.1", "{all}");
    let other = fail(folder, &["lockout", "clear", "127.0.0.2"]);
    assert!(other.contains("This address is not locked out"), "{other}");
    let cleared = succeed(folder, &["lockout", "clear", "127.0.0.1"]);
    assert_eq!(cleared, "Ended the lockout of 127.0.0.1.\n");
    assert_eq!(ask(&running, &key).0, 200);
}

#[test]
fn a_gateway_takes_the_descriptors_that_it_needs_or_fewer_connections() {
    let folder = folder("dev = false\n[limits]\nconnections = 1000\n");
    let folder = folder.path();
    let running = Running::with_descriptors(folder, "-Sn 100");
    let limits = format!("/proc/{}/limits", running.child.id());
    let limits = std::fs::read_to_string(limits).expect("it runs");
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = files.and_then(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok());
    assert!(soft.is_some_and(|soft| soft > 1_000), "{files:?}");
    assert!(!running.stop().contains("too few file descriptors"));

    let running = Running::with_descriptors(folder, "-n 1100");
    assert_eq!(ask(&running, "inf_wrong").0, 401);
    let log = running.stop();
    assert!(log.contains("too few file descriptors"), "{log}");
    let connections = log.split("connections=").nth(1);
    let connections = connections.and_then(|text| text.split_whitespace().next()?.parse().ok());
    assert!(connections.is_some_and(|n: u32| n < 1_000), "{log}");
}

#[test]
fn commands_beside_a_gateway_without_an_admin_socket_change_nothing_behind_its_back() {
    let folder = folder("dev = false\nadmin_socket = false\n");
    let folder = folder.path();
    succeed(folder, &["key", "list", "--offline"]);
    let (_, id) = create_key(folder, "alice");
    let _running = Running::start(folder);
    let refused = fail(folder, &["key", "revoke", &id]);
    assert!(
        refused.contains("set `admin_socket = true`, or stop the gateway first"),
        "{refused}"
    );
}

#[test]
fn a_plugin_is_installed_while_no_gateway_runs() {
    let folder = folder("dev = false\n");
    let folder = folder.path();
    let demo = guests::with_custom_section(&guests::bundled("demo"), 6);
    let digest = Digest::of(&demo).to_string();
    std::fs::write(folder.join("demo.wasm"), demo).expect("the folder can be written");
    let offline = [&INSTALL[..], &["--offline"]].concat();
    let refused = fail(folder, &INSTALL);
    let socket = folder.join(".weir/admin.sock");
    assert!(refused.contains(&socket.display().to_string()), "{refused}");
    assert!(refused.contains("--offline"), "{refused}");
    assert!(!folder.join(".weir/weir.db").exists(), "nothing is made");
    let unsigned = fail(folder, &offline);
    assert!(unsigned.contains("PLUGIN_UNSIGNED"), "{unsigned}");

    let key = succeed(folder, &["plugin", "keygen", "acme.pem"]);
    let is_private = std::fs::metadata(folder.join("acme.pem")).expect("a file");
    assert_eq!(is_private.permissions().mode() & 0o777, 0o600);
    let again = fail(folder, &["plugin", "keygen", "acme.pem"]);
    assert!(again.contains("acme.pem"), "{again}");
    let sign = ["plugin", "sign", "demo.wasm", "--key", "acme.pem"];
    assert_eq!(succeed(folder, &sign).trim(), "demo.wasm.sig");
    let unknown = fail(folder, &["plugin", "verify", "demo.wasm"]);
    assert!(unknown.contains(key.trim()), "{unknown}");
    let settings = format!(
        "dev = false\n[plugins.publishers.acme]\nkeys = [{:?}]\nslots = [\"demo\"]\n",
        key.trim()
    );
    std::fs::write(folder.join("weir.toml"), settings).expect("the folder can be written");
    for good in [
        &["plugin", "verify", "demo.wasm", "--slot", "demo"][..],
        &["plugin", "verify", "demo.wasm", "--key", key.trim()],
    ] {
        let verified = succeed(folder, good);
        assert!(
            verified.contains("Good signature") && verified.contains(&digest),
            "{verified}"
        );
    }
    let another = fail(
        folder,
        &["plugin", "verify", "demo.wasm", "--slot", "openai"],
    );
    assert!(another.contains("for the slot demo"), "{another}");
    let output = run(folder, &offline);
    assert!(
        text(&output.stdout).contains("signed by acme"),
        "{output:?}"
    );
    let database = folder.join(".weir/weir.db").display().to_string();
    assert!(complaint(&output).contains(&database), "{output:?}");

    let _running = Running::start(folder);
    let listed = succeed(folder, &["plugin", "list"]);
    assert!(listed.contains("acme"), "{listed}");
    let slot = json(folder, &["plugin", "show", "demo"]);
    assert_eq!(slot["serving"], *digest, "{slot}");
}

#[test]
fn a_gateway_without_any_issuer_is_operated_through_its_admin_socket() {
    let folder = folder("dev = false\n[plugins]\nallow_unsigned = true\n");
    let folder = folder.path();
    let _running = Running::start(folder);
    let socket = folder.join(".weir/admin.sock");
    let metadata = std::fs::metadata(&socket).expect("the socket is there");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);

    let demo = guests::with_custom_section(&guests::bundled("demo"), 5);
    std::fs::write(folder.join("demo.wasm"), demo).expect("the folder can be written");
    assert!(succeed(folder, &INSTALL).contains("The slot serves with it."));
    let events = succeed(folder, &["plugin", "events", "demo", "--json"]);
    let events: Value = serde_json::from_str(&events).expect("JSON");
    // The kernel's user of the command: this test's own user.
    let me = format!("local:{}", metadata.uid());
    assert_eq!(events["events"][0]["actor"], *me, "{events}");
}

/// A project's folder has no gateway: a plugin that is installed from there goes to its author's running one.
#[test]
fn a_command_in_any_folder_finds_the_development_gateway_that_runs() {
    let home = tempfile::tempdir().expect("a folder");
    let project = home.path().join("project");
    std::fs::create_dir(&project).expect("a folder");
    let demo = guests::with_custom_section(&guests::bundled("demo"), 9);
    std::fs::write(project.join("demo.wasm"), demo).expect("the folder can be written");
    let in_project = |arguments: &[&str]| {
        let mut command = weir(&project);
        command.env("HOME", home.path()).args(arguments);
        command.output().expect("weir runs")
    };
    let refused = in_project(&INSTALL);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(
        complaint(&refused).contains("no gateway runs here"),
        "{refused:?}"
    );

    let gateway = home.path().join("gateway");
    std::fs::create_dir(&gateway).expect("a folder");
    share_compiled_plugins(&gateway.join(".weir"));
    let mut serve = weir(&gateway);
    serve.env("HOME", home.path());
    let running = Running::of(serve.args(["serve", "--listen", "127.0.0.1:0"]));
    let installed = in_project(&INSTALL);
    assert!(installed.status.success(), "{installed:?}");
    let data = gateway.join(".weir").display().to_string();
    assert!(complaint(&installed).contains(&data), "{installed:?}");
    let ran = in_project(&["swarm", "list"]);
    assert!(ran.status.success(), "{ran:?}");
    // A folder with its own configuration uses no other gateway.
    std::fs::write(project.join("weir.toml"), "").expect("the folder can be written");
    let refused = in_project(&INSTALL);
    assert!(
        complaint(&refused).contains("no gateway runs here"),
        "{refused:?}"
    );
    std::fs::remove_file(project.join("weir.toml")).expect("it is there");
    // A crashed gateway leaves its link behind.
    running.crash();
    let refused = in_project(&INSTALL);
    assert!(
        complaint(&refused).contains("no gateway runs here"),
        "{refused:?}"
    );
    assert!(!project.join(".weir").exists(), "nothing is made");
}

/// The key of a development gateway goes only to that gateway, regardless of the configuration's listener.
#[test]
fn a_gateways_own_key_is_sent_to_no_other_port() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    other.set_nonblocking(true).expect("a socket");
    let address = other.local_addr().expect("an address");
    let folder = folder(&format!("listen = \"{address}\"\n"));
    let folder = folder.path();
    let list = |more: &[&str]| run(folder, &[&["swarm", "list"], more].concat());
    assert!(complaint(&list(&[])).contains("no gateway runs here"));
    let running = Running::start(folder);
    let listed = list(&[]);
    assert!(listed.status.success(), "{listed:?}");
    assert!(
        list(&["--url", &format!("http://{}", running.address)])
            .status
            .success()
    );
    let refused = list(&["--url", &format!("http://{address}")]);
    assert!(
        complaint(&refused).contains("its key is valid only there"),
        "{refused:?}"
    );
    let nobody = other.accept().expect_err("nobody has called");
    assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_link_to_the_console_is_printed_and_recorded_and_never_logged() {
    let folder = folder("dev = false\ntrusted_proxies = []\n");
    let folder = folder.path();
    assert!(fail(folder, &["console"]).contains("no gateway runs here"));
    let running = Running::start(folder);
    let link = succeed(folder, &["console"]);
    let (page, code) = link.trim().split_once('#').expect("a fragment");
    assert_eq!(page, format!("http://{}/console/sign-in", running.address));
    assert!(code.len() >= 43, "{code}");
    let named = succeed(folder, &["console", "--url", "https://weir.example.com/"]);
    assert!(
        named.starts_with("https://weir.example.com/console/sign-in#"),
        "{named}"
    );
    let me = std::fs::metadata(folder).expect("a folder").uid();
    let by = format!("local:{me}");
    let recorded = kinds(folder, &["--by", &by]);
    assert!(
        recorded.iter().all(|kind| kind == "console.link_created"),
        "{recorded:?}"
    );
    // As a browser would send the page's form.
    let signed_in = Command::new("curl")
        .args([
            "-s",
            "-o",
            "-",
            "-D",
            "-",
            "-H",
            "sec-fetch-site: same-origin",
            "-d",
        ])
        .arg(format!("code={code}"))
        .arg(format!("{page}/link"))
        .output();
    let answer = text(&signed_in.expect("curl runs").stdout);
    assert!(
        answer.contains("303 See Other") && answer.contains("__Host-weir-console="),
        "{answer}"
    );
    let events = json(folder, &["audit", "--kind", "console.signed_in"]);
    let event = &events["events"][0];
    assert_eq!(
        (&event["actor"], &event["method"]),
        (&by.into(), &"link".into())
    );
    let log = running.stop();
    assert!(!log.contains(code), "{log}");
}

#[test]
fn the_admin_socket_of_a_gateway_that_crashed_is_replaced() {
    let folder = folder("dev = false\n");
    let folder = folder.path();
    Running::start(folder).crash();
    let socket = folder.join(".weir/admin.sock");
    assert!(socket.exists(), "a crash cleans nothing up");
    let _running = Running::start(folder);
    assert!(succeed(folder, &["plugin", "list"]).contains("demo"));
}

#[test]
fn the_admin_socket_can_be_off_and_else_it_belongs_to_one_gateway() {
    // A second gateway on the database would be refused.
    let settings = "dev = false\ndatabase_url = \"sqlite::memory:\"\n";
    let folder = folder(settings);
    let folder = folder.path();
    let _first = Running::start(folder);
    let second = fail(folder, &["serve", "--listen", "127.0.0.1:0"]);
    assert!(
        second.contains("another gateway uses the admin socket .weir/admin.sock"),
        "{second}"
    );
    assert!(succeed(folder, &["plugin", "list"]).contains("demo"));

    configure(folder, &format!("{settings}admin_socket = false\n"));
    let _second = Running::start(folder);
}

#[test]
fn a_path_that_no_socket_can_have_is_named() {
    let long = "a".repeat(100);
    let folder = folder(&format!("data_dir = \"{long}\"\n"));
    share_compiled_plugins(&folder.path().join(&long));
    for command in ["serve", "check"] {
        let refused = fail(folder.path(), &[command]);
        assert!(refused.contains("too long for a Unix socket"), "{refused}");
        assert!(refused.contains("`admin_socket = false`"), "{refused}");
    }
    configure(
        folder.path(),
        &format!("data_dir = \"{long}\"\nadmin_socket = false\n"),
    );
    succeed(folder.path(), &["check"]);
}
