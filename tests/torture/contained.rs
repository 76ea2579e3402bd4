//! W-A: every kind of hostile guest in turn, against one gateway.
//!
//! To add an assault, add it to its kind in [`kinds`]; a kind is contained if all of its assaults are, in every
//! round.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tests::sandbox::{load, sandbox};
use tests::{Gateway, Reply, Upstream, chat, guests, scripts};
use weir_sandbox::adapter::ProviderWorld;
use weir_sandbox::code_cache::CodeCache;
use weir_sandbox::{GuestLimits, Sandbox, loading};
use weir_storage::secrets::SecretKey;

use crate::resident_mib;

const ROUNDS: usize = 3;

/// Maximum growth of the process since before the first guest, in MiB.
const MARGIN_MIB: usize = 64;

/// Time limit of an assault.
const CONTAINED_WITHIN: Duration = Duration::from_secs(15);

/// Nesting depth of JSON that must be refused.
const DEEP: usize = 100_000;

/// One assault, and its required result.
enum Assault {
    /// A command to the misbehaving guest: its request must end with this status and this code.
    Ask(Value, u16, &'static str),
    /// This many commands at once, while healthy requests are served.
    Beside(Value, usize),
    /// A component whose load must fail with an error that contains this.
    Load(Vec<u8>, &'static str),
    /// A client's body that must be refused.
    Post(String),
    /// An upstream's response that must end its request with this status and this code.
    Answer(Reply, u16, &'static str),
    /// Changed compiled code on disk: it must be compiled anew, and replaced.
    Tamper(fn(&mut Vec<u8>)),
}

fn kinds() -> [(&'static str, Vec<Assault>); 20] {
    use Assault::{Answer, Ask, Beside, Load, Post, Tamper};
    let wat = guests::wat_guest;
    let fails = |command: Value| Ask(command, 502, "ADAPTER_FAILED");
    let deep = || format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP));
    let budget = "used up its processor time";
    let nonsense = "returned an unreadable result";
    let too_much = "too much data";
    let everywhere = |behave: &str| {
        ["begin", "next"]
            .map(|place| fails(json!({ "behave": behave, "in": place })))
            .into()
    };
    let drips = json!([{ "Emit": [scripts::start(0), scripts::text(0, "x")] }, { "Wait": 200 }]);
    [
        ("W1", everywhere("spin")),
        (
            "W2",
            [
                "start-loops",
                "initialize-loops",
                "describe-loops",
                "realloc-loops",
                "post-return-loops",
            ]
            .map(|name| Load(wat(name), budget))
            .into(),
        ),
        ("W3", everywhere("grow")),
        (
            "W4",
            vec![
                Load(
                    guests::with_memory(&wat("large-memory"), 320),
                    "ran out of memory",
                ),
                Load(wat("many-memories"), "memories count of 100"),
            ],
        ),
        (
            "W5",
            vec![
                Load(wat("declares-table"), "minimum element size"),
                Load(wat("grows-table"), "ran out of memory"),
            ],
        ),
        ("W6", everywhere("recurse")),
        (
            "W7",
            vec![fails(json!({ "behave": "recurse", "log": true }))],
        ),
        (
            "W8",
            vec![
                Load(wat("huge-string"), nonsense),
                Load(wat("long-string"), too_much),
                Load(wat("huge-list"), nonsense),
                Load(wat("wrapping-list"), nonsense),
                Load(wat("unaligned-list"), nonsense),
                Load(wat("realloc-lies"), nonsense),
                fails(json!({ "behave": "text", "bytes": 10_000_000 })),
            ],
        ),
        ("W9", vec![Load(wat("shared-strings"), too_much)]),
        ("W10", vec![Load(wat("many-resources"), nonsense)]),
        (
            "W11",
            ["double-drop", "forged-handle", "other-handle"]
                .map(|name| Load(wat(name), "handle index"))
                .into(),
        ),
        ("W12", vec![fails(json!({ "behave": "utf8" }))]),
        (
            "W13",
            vec![
                Post(format!(
                    "{{\"model\":\"scripted\",\"messages\":[],\"extra\":{}}}",
                    deep()
                )),
                Post("[".repeat(DEEP)),
                Answer(
                    Reply::new(200)
                        .header("content-type", "application/json")
                        .body(format!("{{\"choices\":{}}}", deep())),
                    502,
                    "UPSTREAM_ERROR",
                ),
            ],
        ),
        (
            "W14",
            vec![
                fails(json!({ "behave": "unreachable" })),
                fails(json!({ "behave": "out-of-bounds" })),
                Load(wat("divide"), "division by zero"),
                Load(wat("describe-traps"), "trapped"),
            ],
        ),
        ("W15", vec![fails(json!({ "behave": "flood-log" }))]),
        (
            "W16",
            vec![
                Answer(Reply::drip(Duration::from_secs(5)), 504, "UPSTREAM_TIMEOUT"),
                // An exchange has a limit on its waits.
                fails(json!({ "behave": "never-done", "wait": u32::MAX })),
                fails(json!({ "behave": "script", "steps": drips, "forever": true })),
            ],
        ),
        ("W17", vec![fails(json!({ "behave": "sleep" }))]),
        ("W18", vec![Beside(json!({ "behave": "copy" }), 4)]),
        (
            "W19",
            vec![
                Load(
                    guests::with_custom_section(&wat("healthy"), 33 << 20),
                    "size: ",
                ),
                Load(wat("healthy")[..200].to_vec(), "parse: "),
                Load(wat("unknown-import"), "imports: "),
            ],
        ),
        (
            "W20",
            vec![
                Tamper(|file| file[0] ^= 1),
                Tamper(|file| {
                    let middle = file.len() / 2;
                    file[middle] ^= 1;
                }),
                Tamper(|file| file.truncate(file.len() - 1)),
                Tamper(Vec::clear),
            ],
        ),
    ]
}

pub(crate) fn run() -> bool {
    crate::runtime(2).block_on(async {
        let upstream = Upstream::start().await;
        upstream.always(Reply::chat("served"));
        let arena = Arena {
            gateway: Gateway::builder()
                .guest("hostile", guests::misbehaving(), None)
                .upstream("scripted", &upstream)
                .tables(
                    "[plugins.limits]\ncall_timeout_ms = 3000\n\
                     [timeouts]\nidle_ms = 1000\ntotal_ms = 4000\n",
                )
                .start()
                .await,
            upstream,
            sandbox: sandbox(4),
        };
        let kinds = kinds();
        assert!(arena.serves().await, "healthy requests are served");
        let before = resident_mib();
        let (mut contained, mut assaults, mut slowest) = ([true; 20], 0, Duration::ZERO);
        for _ in 0..ROUNDS {
            for ((kind, members), contained) in kinds.iter().zip(&mut contained) {
                for (index, assault) in members.iter().enumerate() {
                    let started = Instant::now();
                    let complaint = arena.withstands(assault).await.err();
                    let took = started.elapsed();
                    let complaint = complaint
                        .or_else(|| (took > CONTAINED_WITHIN).then(|| format!("it took {took:?}")));
                    if let Some(complaint) = complaint {
                        println!("W-A: {kind}, assault {index}: {complaint}");
                        *contained = false;
                    }
                    if !arena.serves().await {
                        println!("W-A: {kind}, assault {index}: healthy requests suffer");
                        *contained = false;
                    }
                    assaults += 1;
                    slowest = slowest.max(took);
                }
            }
        }
        let after = resident_mib();
        let contained = contained.iter().filter(|&&contained| contained).count();
        println!(
            "W-A: {contained}/20 contained, in {ROUNDS} rounds of {} assaults, the slowest {slowest:.1?}; \
             resident before {} MiB, after {} MiB (limit + {} MiB)",
            assaults / ROUNDS,
            before,
            after,
            MARGIN_MIB,
        );
        contained == kinds.len() && after <= before + MARGIN_MIB
    })
}

struct Arena {
    gateway: Gateway,
    upstream: Upstream,
    sandbox: Sandbox<ProviderWorld>,
}

impl Arena {
    /// Plays an assault; the error describes the failed containment.
    async fn withstands(&self, assault: &Assault) -> Result<(), String> {
        match assault {
            Assault::Ask(command, status, code) => {
                self.ask("hostile", &command.to_string(), *status, code)
                    .await
            }
            Assault::Beside(command, count) => {
                let command = command.to_string();
                let hostile =
                    (0..*count).map(|_| self.ask("hostile", &command, 502, "ADAPTER_FAILED"));
                let healthy = async {
                    for _ in 0..100 {
                        if !self.is_served("demo", "You said: hello").await {
                            return Err("a healthy request beside it failed".to_owned());
                        }
                    }
                    Ok(())
                };
                let (hostile, healthy) =
                    tokio::join!(futures_util::future::join_all(hostile), healthy);
                hostile.into_iter().collect::<Result<(), _>>().and(healthy)
            }
            Assault::Load(component, complaint) => {
                let loaded = load(&self.sandbox, "guest", component).await;
                match loaded {
                    Ok(_) => Err("it was loaded".to_owned()),
                    Err(error) if error.to_string().contains(complaint) => Ok(()),
                    Err(error) => Err(format!("another complaint: {error}")),
                }
            }
            Assault::Post(body) => {
                let (client, body) = (self.gateway.client(), body.clone().into());
                let json = Some("application/json");
                let answer = client.send(Method::POST, "/chat", json, body).await;
                let status = answer.status.as_u16();
                is(status, &answer.json(), 400, "INVALID_REQUEST")
            }
            Assault::Answer(reply, status, code) => {
                self.upstream.will(reply.clone());
                self.ask("scripted", "x", *status, code).await
            }
            Assault::Tamper(change) => self.tamper(*change).await,
        }
    }

    async fn ask(&self, model: &str, text: &str, status: u16, code: &str) -> Result<(), String> {
        let (client, request) = (self.gateway.client(), chat(model, text));
        let answer = client.try_post("/chat", &request).await;
        let answer = answer.ok_or("the gateway does not answer")?;
        is(answer.status.as_u16(), &answer.json(), status, code)
    }

    async fn tamper(&self, change: fn(&mut Vec<u8>)) -> Result<(), String> {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Arc::new(CodeCache::new(
            folder.path().to_owned(),
            SecretKey::new([1; 32]),
        ));
        let healthy = guests::wat_guest("healthy");
        let load = async || {
            loading::load(
                &self.sandbox,
                Some(&cache),
                &GuestLimits::default(),
                "guest",
                &healthy,
            )
            .await
            .map_err(|error| error.to_string())
        };
        load().await?;
        let file = std::fs::read_dir(folder.path())
            .expect("a folder")
            .next()
            .expect("a file")
            .expect("it can be read")
            .path();
        let good = std::fs::read(&file).expect("the compiled code");
        let mut bad = good.clone();
        change(&mut bad);
        std::fs::write(&file, bad).expect("it can be written");
        load().await?;
        let replaced = std::fs::read(&file).expect("the compiled code") == good;
        replaced.then_some(()).ok_or("it was not replaced".into())
    }

    /// Returns whether the next healthy requests are served, by the same component and by others, and no resources
    /// remain.
    async fn serves(&self) -> bool {
        self.is_served("hostile", "ok").await
            && self.is_served("demo", "You said: hello").await
            && self.is_served("scripted", "served").await
            && self.gateway.app().tasks.is_empty()
    }

    async fn is_served(&self, model: &str, answer: &str) -> bool {
        let request = chat(model, "hello");
        let heard = self.gateway.client().try_post("/chat", &request).await;
        heard.is_some_and(|heard| {
            heard.status == 200 && heard.json()["choices"][0]["message"]["content"] == answer
        })
    }
}

/// Checks that a response is this typed error.
fn is(status: u16, answer: &Value, wanted: u16, code: &str) -> Result<(), String> {
    let error = &answer["error"]["code"];
    (status == wanted && error == code)
        .then_some(())
        .ok_or_else(|| format!("{status} {error} instead of {wanted} {code}"))
}
