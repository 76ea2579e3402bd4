//! The beginning of operations: `weir init`, `weir check --production`, completions and manual pages, and the files
//! under `host/deploy/`.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::Value;
use tests::gateway::{copy_compiled_plugins, share_compiled_plugins};
use tests::source::{migrations, root};
use tests::stores::{Postgres, Redis};
use tests::{Client, weir_program};
use weir_app::config::Config;

use crate::cli::{Served, command, run, text, weir};

fn deployment() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/deploy")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Turns lines with `#` and no space into settings.
fn with_all_settings(text: &str) -> String {
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with(' ') => setting,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn init_writes_a_configuration_that_serves_and_never_replaces_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let written = run(path, &["init"]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    assert!(text(&written.stdout).contains("weir --config weir.toml serve"));
    let toml = read(&path.join("weir.toml"));
    assert!(
        toml.lines()
            .all(|line| line.is_empty() || line.starts_with('#'))
    );
    Config::from_toml(&with_all_settings(&toml)).expect("each setting is one");
    let again = run(path, &["init", "--production"]);
    assert!(!again.status.success());
    assert!(text(&again.stderr).contains("weir.toml already exists"));
    assert_eq!(read(&path.join("weir.toml")), toml);
    share_compiled_plugins(&path.join(".weir"));
    let served = Served::start_as(weir(path), folder, &[]);
    assert_eq!(served.client().get("/health/ready").await.status, 200);
}

fn tls(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tls").join(file);
    path.display().to_string()
}

/// Returns the configuration for production, with secrets generated as the guide says, and the addresses of its
/// servers.
fn production(folder: &Path, postgres: &str, redis: &str) -> String {
    let secrets = folder.join("secrets");
    let made = Command::new(deployment().join("make-secrets.sh"))
        .arg(&secrets)
        .output();
    let made = made.expect("it runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    fs::write(secrets.join("database-url"), postgres).expect("a file");
    fs::write(secrets.join("redis-url"), redis).expect("a file");
    let written = run(folder, &["init", "--production", "production.toml"]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    let toml = read(&folder.join("production.toml"));
    assert_eq!(toml, read(&deployment().join("weir.toml")));
    let data = folder.join("data");
    share_compiled_plugins(&data);
    toml.replace("/run/secrets", &secrets.display().to_string())
        .replace("/var/lib/weir", &data.display().to_string())
        .replace("0.0.0.0:808", "127.0.0.1:1808")
        .replace("/etc/weir/certificate-key.pem", &tls("one.key"))
        .replace("/etc/weir/certificate.pem", &tls("one.pem"))
}

#[tokio::test]
async fn the_production_configuration_is_sound_once_its_secrets_are_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let database = Postgres::shared().create_database().await;
    let redis = Redis::start();
    let toml = production(path, database.expose(), redis.url().expose());
    let secrets = path.join("secrets");
    let pepper = read(&secrets.join("pepper"));
    assert_eq!(pepper.trim().len(), 64);
    fs::write(secrets.join("openai"), "sk-0123456789abcdef0123").expect("a file");
    let check = |toml: &str| {
        fs::write(path.join("production.toml"), toml).expect("a file");
        run(
            path,
            &["--config", "production.toml", "check", "--production"],
        )
    };
    let sound = check(&toml);
    let (said, complaint) = (text(&sound.stdout), text(&sound.stderr));
    assert!(sound.status.success(), "{said}{complaint}");
    assert!(said.contains("The configuration is valid"), "{said}");
    assert!(said.contains("provider gemini is left out"), "{said}");
    // The file is valid and incomplete; a reader must learn that it is.
    for part in ["`identity.web`", "`weir console`"] {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
    let probed = run(path, &["--config", "production.toml", "check", "--probe"]);
    let said = text(&probed.stdout);
    assert!(
        said.contains("PostgreSQL") || said.contains("database"),
        "{said}"
    );
    for secret in [pepper.trim(), tests::stores::PASSWORD, "sk-0123456789"] {
        assert!(!said.contains(secret), "{said}");
    }

    fs::write(secrets.join("sign-in"), "0123456789abcdef").expect("a file");
    let others = check(&with_all_settings(&toml));
    let complaint = text(&others.stderr);
    assert!(!others.status.success());
    assert!(
        complaint.contains("stripe-key cannot be read"),
        "{complaint}"
    );
    let unfinished =
        with_all_settings(&toml).replace("[payments]", "[payments.plans.guru]\n[payments]");
    let without_payments = unfinished
        .split("[payments.plans.guru]")
        .next()
        .expect("a part");
    let others = check(without_payments);
    let complaint = text(&others.stderr);
    for part in [
        "--production",
        "`cors_origins[0]` is still the example value",
        "`identity.web.issuer` is still the example value",
        "`identity.attestation.issuer` is still the example value",
        "`identity.sign_in[0].issuer` is still the example value",
    ] {
        assert!(complaint.contains(part), "{part:?} is not in: {complaint}");
    }
}

#[test]
fn what_is_for_development_does_not_pass_for_production() {
    let folder = tempfile::tempdir().expect("a folder");
    share_compiled_plugins(&folder.path().join(".weir"));
    let check = |toml: &str| {
        fs::write(folder.path().join("weir.toml"), toml).expect("a file");
        let checked = run(folder.path(), &["check", "--production"]);
        assert!(!checked.status.success(), "{toml}");
        text(&checked.stderr)
    };
    let development = check("");
    for setting in [
        "dev",
        "data_dir",
        "api_key_peppers",
        "sealing_keys",
        "webhook_key",
        "internal_listen",
        "providers.demo",
    ] {
        assert!(
            development.contains(&format!("`{setting}` is ")),
            "{setting}: {development}"
        );
    }
    let leftovers = check(
        "dev = false\nlisten = \"0.0.0.0:8080\"\ncors_origins = [\"http://localhost:3000\"]\nredis_url = \"redis://:hush-hush@127.0.0.1:1\"\n\
         [plugins]\nallow_unsigned = true\n[providers.demo]\n",
    );
    for part in [
        "`listen` accepts connections without TLS",
        "`cors_origins` has http://localhost:3000",
        "`redis_url` contains a password",
        "`plugins.allow_unsigned` is `true`",
        "`providers.demo` is configured",
    ] {
        assert!(leftovers.contains(part), "{part:?} is not in: {leftovers}");
    }
    assert!(!leftovers.contains("hush-hush"), "{leftovers}");
    assert!(!leftovers.contains("`dev`"), "{leftovers}");
    let nothing = check("dev = false\n");
    for part in ["no model can be served", "OPENAI_API_KEY is not set"] {
        assert!(nothing.contains(part), "{part:?} is not in: {nothing}");
    }

    fs::write(folder.path().join("key"), "sk_test_0123456789abcdef").expect("a file");
    fs::write(folder.path().join("hook"), "whsec_0123456789abcdef").expect("a file");
    let test_key = check(
        "dev = false\n[payments]\nprocessor = \"stripe\"\nsecret_key = { file = \"./key\" }\n\
         webhook_secrets = [{ file = \"./hook\" }]\nsuccess_url = \"https://a.test/\"\n\
         cancel_url = \"https://a.test/\"\nreturn_url = \"https://a.test/\"\n",
    );
    assert!(
        test_key.contains("`payments.secret_key` is a test key"),
        "{test_key}"
    );
}

/// Commands in other folders find the same data.
#[test]
fn a_relative_data_folder_is_beside_its_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let (etc, elsewhere) = (folder.path().join("etc"), folder.path().join("elsewhere"));
    for path in [&etc, &elsewhere] {
        fs::create_dir(path).expect("a folder");
    }
    let file = etc.join("weir.toml");
    let create_key = |toml: &str, set: &[(&str, &Path)]| {
        fs::write(&file, toml).expect("a file");
        let mut command = weir(&elsewhere);
        command.envs(set.iter().copied()).arg("--config").arg(&file);
        let made = command
            .args(["key", "create", "--user", "me", "--offline"])
            .output()
            .expect("weir runs");
        assert!(made.status.success(), "{}", text(&made.stderr));
    };
    let absolute = folder.path().join("absolute");
    let absolute_toml = format!("data_dir = {absolute:?}\n");
    for (toml, set, data) in [
        ("", None, etc.join(".weir")),
        ("data_dir = \"data\"\n", None, etc.join("data")),
        (&absolute_toml, None, absolute.clone()),
        ("data_dir = \"data\"\n", Some("own"), elsewhere.join("own")),
    ] {
        let set: Vec<_> = set
            .map(|data| ("WEIR_DATA_DIR", Path::new(data)))
            .into_iter()
            .collect();
        let database = data.join("weir.db");
        assert!(!database.exists());
        create_key(toml, &set);
        assert!(database.is_file(), "{toml}{set:?}");
        fs::remove_dir_all(&data).expect("a folder");
    }
    fs::write(&file, "").expect("a file");
    let left = fs::read_dir(&elsewhere).expect("a folder").count();
    assert_eq!(left, 0, "the working folder");

    // The data of an older release, which looked in the working folder.
    let older = elsewhere.join(".weir");
    fs::create_dir(&older).expect("a folder");
    fs::write(older.join("weir.db"), "").expect("a file");
    let mut command = weir(&elsewhere);
    command.arg("--config").arg(&file).arg("check");
    let refused = command.output().expect("weir runs");
    let why = text(&refused.stderr);
    assert!(
        !refused.status.success() && why.contains("move the folder"),
        "{why}"
    );
}

#[test]
fn a_url_with_a_password_may_be_in_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = |toml: &str| {
        fs::write(folder.path().join("weir.toml"), toml).expect("a file");
        run(folder.path(), &["check"])
    };
    let missing = check("database_url = { file = \"./nowhere\" }\n");
    let complaint = text(&missing.stderr);
    assert!(
        complaint.contains("./nowhere cannot be read"),
        "{complaint}"
    );
    assert!(complaint.contains("database_url"), "{complaint}");
    fs::write(
        folder.path().join("url"),
        "mysql://weir:hush-hush@db/weir\n",
    )
    .expect("a file");
    let other = text(&check("database_url = { file = \"./url\" }\n").stderr);
    assert!(other.contains("sqlite: or postgres://"), "{other}");
    assert!(!other.contains("hush-hush"), "{other}");
    let shape = text(&check("database_url = { path = \"./url\" }\n").stderr);
    assert!(shape.contains("{ file = \"PATH\" }"), "{shape}");
}

/// A provider of the built-in catalog names its credential by a variable; an operator with a file configures the
/// file.
#[test]
fn a_built_in_providers_credential_may_be_in_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    share_compiled_plugins(&folder.path().join(".weir"));
    fs::write(folder.path().join("key"), "sk-0123456789abcdef0123").expect("a file");
    let toml = "[providers.openai]\ncredential = { file = \"./key\" }\n";
    fs::write(folder.path().join("weir.toml"), toml).expect("a file");
    let checked = run(folder.path(), &["check"]);
    let said = text(&checked.stdout);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    assert!(!said.contains("provider openai is left out"), "{said}");
    assert!(
        said.contains("provider gemini is left out: the environment variable GEMINI_API_KEY"),
        "{said}"
    );
}

#[test]
fn shells_complete_commands_and_each_has_a_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    for shell in ["bash", "zsh", "fish"] {
        let script = run(path, &["completions", shell]);
        let script = text(&script.stdout);
        assert!(
            script.contains("activate") && script.contains("swarm"),
            "{shell}: {script}"
        );
        assert!(
            !script.contains("compile-plugin"),
            "{shell} completes what is hidden"
        );
    }
    let script = run(path, &["completions", "bash"]).stdout;
    fs::write(path.join("weir.bash"), script).expect("a file");
    let completed = Command::new("bash")
        .args(["--norc", "-c"])
        .arg(". ./weir.bash; COMP_WORDS=(weir led); COMP_CWORD=1; _weir weir led weir; echo \"${COMPREPLY[@]}\"")
        .current_dir(path)
        .output()
        .expect("bash runs");
    assert_eq!(text(&completed.stdout).trim(), "ledger");
    let written = run(path, &["man", "pages"]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    let page = |name: &str| read(&path.join("pages").join(name));
    assert!(page("weir.1").contains("inference gateway"));
    assert!(page("weir-plugin-activate.1").contains("canary"));
    let pages = fs::read_dir(path.join("pages")).expect("a folder").count();
    assert_eq!(
        text(&written.stdout),
        format!("Wrote {pages} manual pages to pages.\n")
    );
    assert!(!path.join("pages/weir-compile-plugin.1").exists());
}

/// A copy of `host/deploy`, in which the guides' commands ran.
fn copied_deployment(folder: &Path) -> PathBuf {
    let copy = folder.join("deploy");
    let copied = Command::new("cp")
        .arg("-a")
        .args([&deployment(), &copy])
        .status();
    assert!(copied.expect("cp runs").success());
    // A developer may have made secrets.
    let _ = fs::remove_dir_all(copy.join("secrets"));
    let made = Command::new(copy.join("make-secrets.sh"))
        .output()
        .expect("it runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    copy
}

/// The files are for the container's user, and the folder keeps other users of the machine out.
#[test]
fn make_secrets_keeps_secrets_and_other_users_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let secrets = folder.path().join("secrets");
    let script = deployment().join("make-secrets.sh");
    let make = || {
        Command::new(&script)
            .arg(&secrets)
            .output()
            .expect("it runs")
    };
    let mode = |path: &Path| {
        fs::metadata(path)
            .expect("it is there")
            .permissions()
            .mode()
            & 0o777
    };
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("its owner may");
    };
    assert!(make().status.success());
    assert_eq!(mode(&secrets), 0o700);
    let files = || -> Vec<_> {
        let files = fs::read_dir(&secrets).expect("a folder");
        let mut files: Vec<_> = files.map(|file| file.expect("an entry").path()).collect();
        files.sort();
        files
            .into_iter()
            .map(|file| (mode(&file), read(&file)))
            .collect()
    };
    let made = files();
    assert_eq!(made.len(), 10);
    assert!(made.iter().all(|(mode, _)| *mode == 0o644));
    // As an earlier release made it.
    set_mode(&secrets.join("pepper"), 0o600);
    assert!(make().status.success());
    assert_eq!(files(), made, "existing secrets stay, and can be read");
    set_mode(&secrets, 0o755);
    let open = make();
    assert!(!open.status.success());
    assert!(
        text(&open.stderr).contains("chmod 700"),
        "{}",
        text(&open.stderr)
    );
    for (argument, succeeds) in [("--help", true), ("--force", false)] {
        let printed = Command::new(&script)
            .arg(argument)
            .current_dir(folder.path())
            .output()
            .expect("it runs");
        assert_eq!(printed.status.success(), succeeds);
        let usage = text(if succeeds {
            &printed.stdout
        } else {
            &printed.stderr
        });
        assert!(
            usage.starts_with("Usage: make-secrets.sh [FOLDER]\n"),
            "{usage}"
        );
        assert!(!folder.path().join(argument).exists());
    }
    // Without openssl there is no secret, not an empty one.
    let without = Command::new("/bin/sh")
        .arg(&script)
        .arg(folder.path().join("others"))
        .env("PATH", "/nowhere")
        .status();
    assert!(!without.expect("it runs").success());
    assert!(!folder.path().join("others/pepper").exists());
}

fn is_root() -> bool {
    fs::metadata("/proc/self").expect("Linux").uid() == 0
}

/// A node that a set of deployment files started.
struct Node {
    process: Child,
    log: Lines<BufReader<ChildStderr>>,
}

impl Node {
    fn start(set: &str, folder: &Path, deploy: &Path, data: &Path) -> Self {
        let mut unshare = command(Path::new("unshare"), folder);
        if !is_root() {
            unshare.args(["--user", "--map-root-user", "--map-auto"]);
        }
        let mut process = unshare
            .arg("--mount")
            .arg(root().join("target/deploy/bin/python"))
            .arg(root().join("tests/deploy/start.py"))
            .arg(set)
            .args([deploy, &weir_program(), data])
            .env("WEIR_LISTEN", "127.0.0.1:0")
            .env("WEIR_INTERNAL_LISTEN", "127.0.0.1:0")
            .env("WEIR_LIMITS__DRAIN_DELAY_MS", "0")
            .stderr(Stdio::piped())
            .spawn()
            .expect("unshare runs");
        let log = BufReader::new(process.stderr.take().expect("piped")).lines();
        Self { process, log }
    }

    /// Reads the log until the node is ready.
    fn address(&mut self) -> SocketAddr {
        let mut lines = Vec::new();
        while let Some(Ok(line)) = self.log.next() {
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            if event["message"] == "ready" {
                let address = event["address"].as_str().expect("an address");
                return address.parse().expect("an address");
            }
            lines.push(line);
        }
        panic!("it ended: {lines:#?}");
    }

    /// Returns the user's id.
    fn uid(&self) -> u32 {
        let process = Path::new("/proc").join(self.process.id().to_string());
        fs::metadata(process).expect("it runs").uid()
    }

    /// Sends SIGTERM, and returns whether the node ended well.
    fn stop(mut self) -> bool {
        let pid = self.process.id().to_string();
        let told = Command::new("kill").arg(pid).status();
        assert!(told.expect("kill runs").success());
        self.log.by_ref().map_while(Result::ok).for_each(drop);
        self.process.wait().expect("it ends").success()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn every_set_of_deployment_files_starts_as_its_user() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let deploy = copied_deployment(path);
    let (database, redis) = (Postgres::shared().create_database().await, Redis::start());
    for (secret, url) in [
        ("database-url", database.expose()),
        ("redis-url", redis.url().expose()),
    ] {
        fs::write(deploy.join("secrets").join(secret), url).expect("a file");
    }
    fs::write(deploy.join("secrets/openai"), "sk-0123456789abcdef0123").expect("a file");
    let data = path.join("data");
    share_compiled_plugins(&data);
    fs::remove_file(data.join("cache/plugins")).expect("a link");
    copy_compiled_plugins(&data, None);
    for (set, uid) in [
        ("compose", 65532),
        ("kubernetes", 65532),
        ("helm", 65532),
        ("aws", 65532),
        ("azure", 65532),
        ("gcp", 65532),
        ("systemd", 999),
    ] {
        let mut node = Node::start(set, path, &deploy, &data);
        let client = Client::new(node.address());
        assert_eq!(client.get("/health/ready").await.status, 200, "{set}");
        // Other users than root see the ids of their own namespace.
        assert!(!is_root() || node.uid() == uid, "{set}");
        assert!(node.stop(), "{set}");
    }
}

/// Each deployment provides everything that the configuration names.
#[test]
fn every_secret_of_the_production_configuration_is_made_and_mounted() {
    let toml = read(&deployment().join("weir.toml"));
    let set = toml.lines().filter(|line| !line.starts_with('#'));
    let secrets: Vec<_> = set
        .flat_map(|line| line.split("/run/secrets/").skip(1))
        .map(|rest| rest.split('"').next().expect("a name").to_owned())
        .collect();
    assert!(secrets.len() >= 8, "{secrets:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let made = copied_deployment(folder.path()).join("secrets");
    let compose = read(&deployment().join("compose.yaml"));
    let kustomization = read(&deployment().join("kustomization.yaml"));
    let mounted = compose
        .lines()
        .find(|line| line.contains("secrets: [pepper"))
        .expect("a line");
    for secret in &secrets {
        assert!(made.join(secret).is_file(), "{secret} is not made");
        assert!(
            mounted.contains(&**secret),
            "compose.yaml does not mount {secret}"
        );
        assert!(
            compose.contains(&format!("  {secret}: {{ file: ./secrets/{secret} }}")),
            "{secret}"
        );
        assert!(
            kustomization.contains(&format!("- secrets/{secret}\n")),
            "{secret}"
        );
    }
}

#[test]
fn every_migration_has_an_upgrade_note() {
    let guide = upgrade_pages().concat();
    let (_, quiet) = guide
        .split_once("These migrations need no attention:")
        .expect("the list of migrations without a note");
    let (quiet, _) = quiet.split_once('.').expect("the end of the list");
    // Such as `0001–0011, 0013`.
    let quiet: Vec<_> = quiet
        .split(',')
        .map(|numbers| {
            numbers
                .trim()
                .split_once('–')
                .unwrap_or((numbers.trim(), numbers.trim()))
        })
        .collect();
    for name in migrations("sqlite") {
        let number = name.split('_').next().expect("a number");
        let has_note = guide.contains(&format!("\n| {number} |"));
        let is_quiet = quiet
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&number));
        assert!(
            has_note != is_quiet,
            "{name} needs either a note in host/deploy/upgrades/ or a place in the last list of its README.md"
        );
    }
}

/// The pages about upgrades.
fn upgrade_pages() -> Vec<String> {
    let pages = fs::read_dir(deployment().join("upgrades")).expect("a folder");
    let pages = pages.map(|page| read(&page.expect("an entry").path()));
    pages.collect()
}

#[test]
fn the_upgrade_guide_lists_each_releases_page() {
    let folder = deployment().join("upgrades");
    let guide = read(&folder.join("README.md"));
    for page in fs::read_dir(&folder).expect("a folder") {
        let name = page.expect("an entry").file_name();
        let name = name.to_str().expect("text");
        let is_listed = guide.contains(&format!("]({name})"));
        assert!(name == "README.md" || is_listed, "{name} is not listed");
    }
}
