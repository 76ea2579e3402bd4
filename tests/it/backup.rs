//! The guide's backups, made while a gateway serves, and restored into another one.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sqlx::{Connection, Executor};
use tests::gateway::share_compiled_plugins;
use tests::stores::Postgres;
use weir_storage::secrets::SecretUrl;

use crate::cli::{Served, run, text, weir};

fn configuration(database: &SecretUrl) -> String {
    format!("dev = true\ndatabase_url = {:?}\n", database.expose())
}

async fn balance(served: &Served) -> Value {
    let client = served.client();
    let answer = client.post("/billing/sync-balance", &json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut balance = answer.json();
    if let Some(fields) = balance.as_object_mut() {
        fields.retain(|name, _| name.contains("credits"));
    }
    balance
}

async fn chat(served: &Served) {
    let body = json!({ "model": "demo", "messages": [{ "role": "user", "content": "hi" }] });
    let answer = served.client().post("/chat", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Keeps only the keys of the data folder, which a database's backup needs.
fn keep_keys(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    let copied = Command::new("cp")
        .args(["-a", "--no-target-directory", "--"])
        .args([from.join("keys"), to.join("keys")])
        .status();
    assert!(copied.expect("cp runs").success());
}

/// Checks that the data exist, the same keys work, and the ledger is sound.
async fn assert_restored(served: Served, then: &Value) {
    assert_eq!(&balance(&served).await, then);
    chat(&served).await;
    assert_ne!(&balance(&served).await, then, "it goes on from there");
    let verified = run(served.folder(), &["ledger", "verify", "--all"]);
    assert!(verified.status.success(), "{}", text(&verified.stderr));
    let (log, success) = served.stop();
    assert!(success, "{log}");
}

#[tokio::test]
async fn a_copy_of_sqlite_that_was_made_while_it_serves_is_whole() {
    let served = Served::configured("");
    let key = served.key();
    chat(&served).await;
    let then = balance(&served).await;
    let data = served.folder().join(".weir");
    let kept = tempfile::tempdir().expect("a folder");
    let copy = kept.path().join("weir.db");
    let url = format!("sqlite:{}", data.join("weir.db").display());
    sqlx::any::install_default_drivers();
    let mut database = sqlx::AnyConnection::connect(&url).await.expect("it opens");
    let vacuum = format!("VACUUM INTO '{}'", copy.display());
    let copied = database.execute(sqlx::AssertSqlSafe(vacuum)).await;
    copied.expect("it is copied");
    keep_keys(&data, kept.path());
    chat(&served).await;
    assert_ne!(balance(&served).await, then);
    drop(served);

    let folder = tempfile::tempdir().expect("a folder");
    let restored = folder.path().join(".weir");
    fs::create_dir(&restored).expect("a folder");
    share_compiled_plugins(&restored);
    fs::copy(&copy, restored.join("weir.db")).expect("it can be copied");
    keep_keys(kept.path(), &restored);
    let served = Served::start_as(weir(folder.path()), folder, &[]);
    assert_eq!(served.key(), key);
    assert_restored(served, &then).await;
}

#[tokio::test]
async fn a_dump_of_postgresql_that_was_made_while_it_serves_is_whole() {
    let server = Postgres::shared();
    let database = server.create_database().await;
    let served = Served::configured(&configuration(&database));
    let key = served.key();
    chat(&served).await;
    let then = balance(&served).await;
    let kept = tempfile::tempdir().expect("a folder");
    let dump = kept.path().join("weir.dump");
    let mut pg_dump = Postgres::tool("pg_dump");
    pg_dump.args(["--format=custom", "--dbname", database.expose()]);
    pg_dump.stdout(File::create(&dump).expect("a file"));
    assert!(pg_dump.status().expect("it runs").success());
    keep_keys(&served.folder().join(".weir"), kept.path());
    chat(&served).await;
    drop(served);

    let fresh = server.create_database().await;
    let mut pg_restore = Postgres::tool("pg_restore");
    pg_restore.args(["--no-owner", "--exit-on-error", "--dbname", fresh.expose()]);
    pg_restore.stdin(File::open(&dump).expect("the dump"));
    assert!(
        pg_restore
            .stdout(Stdio::null())
            .status()
            .expect("it runs")
            .success()
    );
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join(".weir");
    fs::create_dir(&data).expect("a folder");
    share_compiled_plugins(&data);
    keep_keys(kept.path(), &data);
    fs::write(folder.path().join("weir.toml"), configuration(&fresh)).expect("a file");
    let served = Served::start_as(weir(folder.path()), folder, &[]);
    assert_eq!(served.key(), key);
    assert_restored(served, &then).await;
}
