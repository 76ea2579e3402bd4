//! W-E: an adapter replaced a thousand times under load, each time as a canary first, behind a filter that is
//! replaced, too; and refusals of bad components meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::{Client, Reply, guests};
use tokio::task::JoinSet;

use crate::load::ask;
use crate::process::{Node, Providers, Stores};
use crate::runtime;

const CONNECTIONS: usize = 32;

const SWAPS: usize = 1_000;

/// Period of swaps to a new component; the others alternate between two.
const SWAPS_PER_NEW_COMPONENT: usize = 20;

/// Swaps before the first memory sample: pools and caches fill.
const WARM_UP: usize = 250;

/// Memory that a swap may cost in the long run; the code of one component has some hundred KiB.
const SLOPE_KIB: f64 = 16.0;

const PATH: &str = "/admin/plugins/openai";

/// The filter of all requests and responses, and the period of its replacement, in swaps.
const FILTER: &str = "redact-pii";
const SWAPS_PER_FILTER: usize = 50;

const CREDITS: &str = "100000000";

pub(crate) fn run() -> bool {
    runtime(1).block_on(async {
        let words = ["one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight "];
        let stream = Reply::chat_stream(words).pausing(Duration::from_millis(4));
        let providers = Providers::start(Reply::chat("one two three"), stream).await;
        let tables = format!("{}[[filters]]\nslot = {FILTER:?}\n", providers.tables());
        let mut node = Node::new(&Stores::default(), &tables);
        node.start();
        let operator = node.operator();
        let load = Load::start(&node.client(CREDITS));

        let components = [openai(0), openai(1)];
        let mut digests = Vec::new();
        for component in &components {
            digests.push(install(&operator, component).await);
        }
        let mut filters = Vec::new();
        for number in [0, 1] {
            let component = guests::with_custom_section(&guests::bundled(FILTER), number);
            let path = format!("/admin/plugins/{FILTER}");
            let answer = operator.put_component(&path, &component).await;
            filters.push(answer.json()["digest"].as_str().expect("a digest").to_owned());
        }
        let began = Instant::now();
        let mut resident = Vec::new();
        for swap in 0..SWAPS {
            if swap % SWAPS_PER_NEW_COMPONENT == 0 {
                let number = u32::try_from(swap + 2).expect("few");
                let digest = install(&operator, &openai(number)).await;
                activate(&operator, &digest).await;
                activate(&operator, &digests[0]).await;
                let path = format!("/admin/plugins/openai/{digest}");
                assert_eq!(operator.delete(&path).await.status, 204);
            } else {
                let digest = &digests[swap % digests.len()];
                begin_canary(&operator, digest).await;
                activate(&operator, digest).await;
            }
            if swap % SWAPS_PER_FILTER == 0 {
                let digest = &filters[swap / SWAPS_PER_FILTER % filters.len()];
                let path = format!("/admin/plugins/{FILTER}/activate");
                let answer = operator.post(&path, &json!({ "digest": digest })).await;
                assert_eq!(answer.json()["serving"], **digest, "{}", answer.text());
            }
            if swap >= WARM_UP {
                resident.push((swap as f64, node.resident_kib() as f64));
            }
            if swap % 100 == 99 {
                println!("W-E: {} swaps, {} KiB resident", swap + 1, node.resident_kib());
            }
        }
        let took = began.elapsed();
        let slope = slope(&resident);
        let swapped = load.so_far();

        let mut refused = 0;
        let bad = bad_components();
        for (what, component) in &bad {
            let answer = operator.put_component(PATH, component).await;
            let is_refused = answer.status == 422 || answer.status == 413;
            if !is_refused || answer.json()["error"]["code"] != "PLUGIN_REFUSED" {
                println!("W-E: {what} is answered {} {}", answer.status, answer.text());
                continue;
            }
            refused += 1;
        }
        let slot = operator.get("/admin/plugins/openai").await.json();
        let still_serves = digests.iter().any(|digest| slot["serving"] == **digest);
        let load = load.stop().await;
        let (served, failed) = (load.served, load.failed);
        let sound = node.is_sound() && node.panics() == 0;
        println!(
            "W-E: {SWAPS} swaps in {took:.0?} under {CONNECTIONS} connections: {} served meanwhile, {served} in all, \
             {failed} failed; {slope:.2} KiB of memory a swap (limit {SLOPE_KIB}); {refused} of {} bad components \
             refused, the old one {}; the ledger is {}",
            swapped,
            bad.len(),
            if still_serves { "serves" } else { "does not serve" },
            if sound { "sound" } else { "not sound" },
        );
        failed == 0 && served > SWAPS && slope <= SLOPE_KIB && refused == bad.len() && still_serves && sound
    })
}

/// Requests on this many connections, one after another on each, every second one streamed.
struct Load {
    counts: Arc<Counts>,
    requests: JoinSet<()>,
}

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    served: AtomicUsize,
    failed: AtomicUsize,
}

struct Loaded {
    served: usize,
    failed: usize,
}

impl Load {
    fn start(client: &Client) -> Self {
        let counts = Arc::new(Counts::default());
        let mut requests = JoinSet::new();
        for connection in 0..CONNECTIONS {
            let (client, counts) = (client.clone(), counts.clone());
            requests.spawn(async move {
                let mut stream = connection % 2 == 0;
                while !counts.stop.load(Ordering::Relaxed) {
                    let heard = ask(&client, stream).await;
                    // The response is complete and charged.
                    if heard.status == Some(200) && heard.code.is_none() && heard.paid.is_some() {
                        counts.served.fetch_add(1, Ordering::Relaxed);
                    } else {
                        counts.failed.fetch_add(1, Ordering::Relaxed);
                        println!("W-E: a request failed: {heard:?}");
                    }
                    stream = !stream;
                }
            });
        }
        Self { counts, requests }
    }

    fn so_far(&self) -> usize {
        self.counts.served.load(Ordering::Relaxed)
    }

    async fn stop(self) -> Loaded {
        self.counts.stop.store(true, Ordering::Relaxed);
        self.requests.join_all().await;
        Loaded {
            served: self.counts.served.load(Ordering::Relaxed),
            failed: self.counts.failed.load(Ordering::Relaxed),
        }
    }
}

/// The bundled adapter, as different components.
fn openai(number: u32) -> Vec<u8> {
    guests::with_custom_section(&guests::bundled("openai"), number)
}

fn bad_components() -> Vec<(&'static str, Vec<u8>)> {
    let mut bad = vec![
        ("nothing", Vec::new()),
        ("a text", b"no component".to_vec()),
        ("half a component", {
            let whole = openai(0);
            whole[..whole.len() / 2].to_vec()
        }),
        ("a component of 33 MiB", {
            guests::with_custom_section(&openai(0), 33 << 20)
        }),
    ];
    let guests = [
        "unknown-import",
        "http-import",
        "outbound-import",
        "no-exports",
        "describe-traps",
        "describe-loops",
        "start-loops",
        "initialize-loops",
        "realloc-loops",
        "realloc-calls-out",
        "post-return-loops",
        "declares-memory",
        "declares-table",
        "many-memories",
        "huge-string",
        "unknown-step",
    ];
    bad.extend(guests.map(|name| (name, guests::wat_guest(name))));
    bad
}

async fn install(operator: &Client, component: &[u8]) -> String {
    let answer = operator.put_component(PATH, component).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["digest"]
        .as_str()
        .expect("a digest")
        .to_owned()
}

async fn activate(operator: &Client, digest: &str) {
    let body: Value = json!({ "digest": digest });
    let answer = operator.post("/admin/plugins/openai/activate", &body).await;
    assert_eq!(answer.json()["serving"], *digest, "{}", answer.text());
}

/// Serves half of the accounts by a component, unless it already serves all.
async fn begin_canary(operator: &Client, digest: &str) {
    let body: Value = json!({ "digest": digest, "share": 0.5 });
    let answer = operator.post("/admin/plugins/openai/activate", &body).await;
    let is_active = answer.status == 409 && answer.text().contains("PLUGIN_ACTIVE");
    assert!(answer.status == 200 || is_active, "{}", answer.text());
}

/// Returns the slope of the second over the first, by least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let together: f64 = points
        .iter()
        .map(|(x, y)| (x - mean_x) * (y - mean_y))
        .sum();
    let alone: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    together / alone
}
