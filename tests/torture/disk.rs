//! L13: the disk is full for half a minute, under load.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tests::{Client, Reply};
use tokio::sync::watch;

use crate::load;
use crate::money;
use crate::process::{Node, Providers, Stores, shown, wait_until};

/// Size of the file system with the node's data.
const SIZE: &str = "64m";

/// Time under load before the disk is full, and after that.
const BETWEEN: Duration = Duration::from_secs(2);

const FULL: Duration = Duration::from_secs(30);

/// Time until no write succeeds, since earlier blocks may still be overwritten.
const NOTICED: Duration = Duration::from_secs(10);

/// Time limit from free space to the first response, and to readiness.
const LIMIT: Duration = Duration::from_secs(5);

/// Time in which all earlier requests are recorded.
const CATCHING_UP: Duration = Duration::from_secs(15);

/// A separate file system, unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn at(folder: &Path) -> Self {
        let mounted = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={SIZE},mode=0700"),
                "tmpfs",
            ])
            .arg(folder)
            .status();
        let mounted = mounted.is_ok_and(|status| status.success());
        assert!(mounted, "mounting a small file system takes root");
        Self(folder.to_owned())
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Fills all free space.
    fn fill(&self) {
        let file = File::options()
            .create(true)
            .append(true)
            .open(self.ballast());
        let mut file = file.expect("the ballast can be opened");
        for size in [1 << 20, 4 << 10, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn clear(&self) {
        std::fs::remove_file(self.ballast()).expect("the ballast is there");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

pub(crate) fn run() -> bool {
    let runtime = crate::runtime(2);
    let providers = runtime.block_on(Providers::start(
        Reply::chat_with_usage("paid", money::TOKENS_INPUT, 100).after(Duration::from_millis(50)),
        Reply::chat_stream_with_usage(["a", "b", "c", "d"], money::TOKENS_INPUT, 200)
            .pausing(Duration::from_millis(50)),
    ));
    let mut node = Node::new(&Stores::default(), &providers.tables());
    let disk = SmallDisk::at(&node.data_dir());
    let client = node.client("10000000");
    node.start();

    let (stop, stopped) = watch::channel(false);
    let load = runtime.spawn(load::run(client.clone(), stopped));
    std::thread::sleep(BETWEEN);
    let filled = Instant::now();
    let watched = runtime.block_on(async {
        let mut ready_at = None;
        let mut reason = String::new();
        while filled.elapsed() < FULL {
            // Space that the node frees, such as a moved log, is filled again.
            disk.fill();
            match why_not_ready(&client).await {
                None => ready_at = Some(filled.elapsed()),
                Some(why) => reason = why,
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        (ready_at, reason)
    });
    let (ready_at, reason) = watched;
    disk.clear();
    let (serving, ready) = runtime.block_on(async {
        let cleared = Instant::now();
        let serving = wait_until(2 * LIMIT, async || {
            load::ask(&client, false).await.paid.is_some()
        });
        let serving = serving.await;
        let ready = wait_until(2 * LIMIT, async || why_not_ready(&client).await.is_none()).await;
        (serving, ready.map(|_| cleared.elapsed()))
    });
    std::thread::sleep(BETWEEN);
    stop.send_replace(true);
    let heard = runtime.block_on(load).expect("no panic");
    let (closed, charges, totals) = runtime.block_on(async {
        let books = node.books().await;
        let closed = wait_until(CATCHING_UP, async || books.totals().await.open == 0).await;
        let figures = (closed, books.charges().await, books.totals().await);
        books.close().await;
        figures
    });
    let sound = node.is_sound();
    let answered: Vec<_> = heard.iter().filter(|heard| heard.paid.is_some()).collect();
    let uncharged = answered.iter().filter(|heard| heard.is_lost(&charges));
    let uncharged = uncharged.count();
    let unpaid = providers.calls() as i64 - totals.charged;
    let panics = node.panics();
    println!(
        "L13: the disk full for {FULL:.0?}: of {} requests {} answered, {uncharged} of them without their charge; {} upstream \
         calls, {unpaid} more than charges; not ready from {} on ({reason:?}); serving again in {} and ready in {} (limit \
         {LIMIT:.0?}), last open hold gone after {}, ledger sound: {sound}, {panics} panics",
        heard.len(),
        answered.len(),
        providers.calls(),
        shown(ready_at.or(Some(Duration::ZERO))),
        shown(serving),
        shown(ready),
        shown(closed),
    );
    uncharged == 0
        && !answered.is_empty()
        && unpaid == 0
        && ready_at.is_none_or(|at| at <= NOTICED)
        && serving.is_some_and(|took| took <= LIMIT)
        && ready.is_some_and(|took| took <= LIMIT)
        && closed.is_some()
        && sound
        && panics == 0
}

async fn why_not_ready(client: &Client) -> Option<String> {
    let answer = client.get("/health/ready").await;
    match answer.status.as_u16() {
        200 => None,
        _ => Some(
            answer.json()["error"]["message"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        ),
    }
}
