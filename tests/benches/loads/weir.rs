//! The gateway of a load, with its accounts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use futures_util::StreamExt;
use tests::raw::AdminSocket;

use super::Process;

/// Concurrent requests that create keys.
const CREATING: usize = 16;

/// Writes the settings of a gateway whose limits exceed this number of concurrent requests. `stores` are settings, too.
pub(crate) fn write_settings(folder: &Path, upstream: SocketAddr, stores: &str, concurrent: usize) {
    let most = concurrent + 40;
    // Valgrind translates a guest's code when it counts its first call, which takes longer than the default limits.
    let mut toml = format!(
        "listen = \"127.0.0.1:0\"\ndev = true\n{stores}\
         [rate_limits]\nfree = 1000000000\naddress = 1000000000\n\
         [limits]\nconnections = {most}\nconnections_per_address = {most}\nconcurrent_requests = {most}\n\
         requests_per_account = {{ free = {most} }}\nrequests_per_upstream = {most}\nrequests_per_slot = {most}\n\
         [plugins]\nall_memory_mib = 16384\n\
         [plugins.limits]\ncpu_ms = 60000\ncall_timeout_ms = 60000\n"
    );
    // Cheap enough for the free plan's credits.
    for model in ["plain", "burst", "paced", "held"] {
        toml += &format!(
            "[providers.{model}]\nadapter = \"openai\"\nbase_url = \"http://{upstream}/{model}/v1\"\n\
             [models.{model}]\ncontext_window = 200000\nmax_output_tokens = 1000\ndefault_output_tokens = 500\nsupports_tools = true\n\
             upstreams = [{{ provider = {model:?} }}]\nprice = {{ input = 0.000001, output = 0.000001 }}\n"
        );
    }
    fs::write(folder.join("weir.toml"), toml).unwrap();
}

/// Starts weir in the folder of its settings, by the command `launcher`; returns its address.
pub(crate) fn serve(launcher: &[String], program: &Path, folder: &Path) -> (Process, SocketAddr) {
    let mut child = Command::new(&launcher[0])
        .args(&launcher[1..])
        .arg(program)
        .arg("serve")
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(fs::File::create(folder.join("log")).unwrap())
        .spawn()
        .unwrap();
    let mut greeting = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let address = loop {
        line.clear();
        assert!(greeting.read_line(&mut line).unwrap() > 0, "weir has ended");
        if let Some((_, rest)) = line.split_once("curl http://") {
            break rest.split('/').next().unwrap().parse().unwrap();
        }
    };
    // Later output is discarded, and must not block it.
    std::thread::spawn(move || {
        while greeting
            .read_line(&mut String::new())
            .is_ok_and(|read| read > 0)
        {}
    });
    (Process(child), address)
}

/// Creates accounts with one key each, at the admin socket of a gateway; returns the keys.
pub(crate) async fn create_keys(folder: &Path, accounts: usize) -> Vec<String> {
    let socket = AdminSocket::of(&folder.join(".weir"));
    let users = (0..accounts).map(|number| format!("usr_{number}"));
    let creating = futures_util::stream::iter(users)
        .map(async |user| socket.create_key(&user).await)
        .buffered(CREATING);
    creating.collect().await
}
