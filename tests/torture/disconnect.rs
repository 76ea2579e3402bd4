//! L10: clients that disconnect, at each point of a response.

use std::time::Duration;

use tests::stores::{Durability, Postgres};
use tests::{Client, Gate, Gateway, Reply, Upstream, chat, patiently};
use tokio::task::JoinSet;
use weir_ledger::Credits;

use crate::money::{self, Books, price};
use crate::process::{Stores, provider, wait_until};

/// Disconnects at each point, on each database.
const CUTS: usize = 250;

/// Clients that disconnect together.
const TOGETHER: usize = 25;

/// Time for which a stream is read on after its client's disconnect.
const DRAIN: Duration = Duration::from_millis(1_000);

/// Time limit for the end of a cut request: the drain, and this machine's delay.
const PATIENCE: Duration = Duration::from_secs(20);

const PIECES: usize = 10;

/// One piece of a response, of three tokens by its bytes.
const PIECE: &str = "eleven byte";

/// Tokens that the upstream reports for a complete response: more than an estimate.
const TOKENS_OUTPUT: u64 = 123;

const BYTES_PER_TOKEN: u64 = 4;

/// The point of the disconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    BeforeHeaders,
    AtFirstByte,
    MidStream,
    AfterLastChunk,
}

/// The upstream's behaviour after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Upstreams {
    /// Completes the response and reports usage.
    Ends,
    /// Stops sending.
    FallsSilent,
}

struct Case {
    cut: Cut,
    then: Upstreams,
    stream: bool,
}

pub(crate) fn run() -> bool {
    let runtime = crate::runtime(2);
    runtime.block_on(async {
        let postgres = Postgres::start(Durability::Real);
        let on_sqlite = cuts("SQLite", &Stores::default()).await;
        let stores = Stores {
            postgres: Some(postgres.create_database().await),
            redis: None,
        };
        on_sqlite & cuts("PostgreSQL", &stores).await
    })
}

async fn cuts(database: &str, stores: &Stores) -> bool {
    let mut cases = Vec::new();
    for cut in [
        Cut::BeforeHeaders,
        Cut::AtFirstByte,
        Cut::MidStream,
        Cut::AfterLastChunk,
    ] {
        for then in [Upstreams::Ends, Upstreams::FallsSilent] {
            // A plain response can only be cut before it.
            let stream = cut != Cut::BeforeHeaders || then == Upstreams::FallsSilent;
            cases.push(Case { cut, then, stream });
        }
    }
    let mut upstreams = Vec::new();
    let mut builder = Gateway::builder().tables(&format!(
        "[limits]\nhang_up_drain_ms = {}\n",
        DRAIN.as_millis()
    ));
    for case in &cases {
        let upstream = Upstream::start().await;
        builder = builder.tables(&provider(&case.model(), &upstream));
        upstreams.push(upstream);
    }
    if let Some(url) = &stores.postgres {
        builder = builder.postgres(url);
    }
    let gateway = builder.start().await;
    let books = Books::of(&gateway);
    let (mut settled, mut sound) = (0, true);
    for (case, upstream) in cases.iter().zip(&upstreams) {
        let mut over = true;
        for _ in 0..CUTS / 2 / TOGETHER {
            over &= case.play(&gateway, upstream).await;
        }
        let model = case.model();
        let as_expected = books
            .settled(&model, case.charge(), case.then == Upstreams::FallsSilent)
            .await;
        println!(
            "L10: {database}, cut {:?}, the upstream {:?}: {as_expected} of {} settled at {} credits",
            case.cut,
            case.then,
            CUTS / 2,
            case.charge(),
        );
        settled += as_expected;
        sound &= over && upstream.count() == CUTS / 2;
    }
    let totals = books.totals().await;
    let balanced = books.are_sound().await;
    println!(
        "L10: {database}: {settled} of {} settled as they should be, half on the upstream's usage, half on an \
         estimate; {} charged, {} open holds, {} overrun, ledger sound: {balanced}",
        4 * CUTS,
        totals.charged,
        totals.open,
        Credits::from_micro(totals.overrun),
    );
    sound
        && balanced
        && settled == 4 * CUTS as i64
        && (totals.holds, totals.charged) == (settled, settled)
        && (totals.open, totals.overrun) == (0, 0)
}

impl Case {
    /// The model and the provider of this case.
    fn model(&self) -> String {
        format!("{:?}-{:?}", self.cut, self.then).to_lowercase()
    }

    /// Pieces that arrive before the disconnect.
    fn pieces(&self) -> usize {
        match self.cut {
            Cut::BeforeHeaders => 0,
            Cut::AtFirstByte => 1,
            Cut::MidStream => PIECES / 2,
            Cut::AfterLastChunk => PIECES,
        }
    }

    fn charge(&self) -> Credits {
        match self.then {
            Upstreams::Ends => price(money::TOKENS_INPUT, TOKENS_OUTPUT),
            Upstreams::FallsSilent => {
                let bytes = (self.pieces() * PIECE.len()) as u64;
                price(
                    (money::TEXT.len() as u64).div_ceil(BYTES_PER_TOKEN),
                    bytes.div_ceil(BYTES_PER_TOKEN),
                )
            }
        }
    }

    fn reply(&self, gate: &Gate) -> Reply {
        let reply = if self.stream {
            Reply::chat_stream_with_usage([PIECE; PIECES], money::TOKENS_INPUT, TOKENS_OUTPUT)
        } else {
            Reply::chat_with_usage(PIECE, money::TOKENS_INPUT, TOKENS_OUTPUT)
        };
        match self.cut {
            Cut::BeforeHeaders => reply.after_gate(gate),
            _ => reply.gate_before_piece(self.pieces(), gate),
        }
    }

    /// Runs some clients that disconnect; returns whether each request ended in time.
    async fn play(&self, gateway: &Gateway, upstream: &Upstream) -> bool {
        let gate = Gate::new();
        let calls = upstream.count();
        upstream.always(self.reply(&gate));
        let mut clients = JoinSet::new();
        for _ in 0..TOGETHER {
            clients.spawn(self.ask(gateway.client()));
        }
        if self.cut == Cut::BeforeHeaders {
            // No response arrives, but all requests have.
            patiently(async {
                while upstream.count() < calls + TOGETHER {
                    upstream.next_request().await;
                }
            })
            .await;
            clients.shutdown().await;
        } else {
            while let Some(read) = clients.join_next().await {
                read.expect("each reads so far and hangs up");
            }
        }
        if self.then == Upstreams::Ends {
            if !self.stream {
                // A plain response is read to its end, however late it comes.
                tokio::time::sleep(DRAIN).await;
            }
            // The gateway learns of the disconnect from the socket; a request on the same runtime gives it the time.
            gateway.stranger().get("/health").await;
            gate.open();
        }
        let tasks = &gateway.app().tasks;
        wait_until(PATIENCE, async || tasks.is_empty())
            .await
            .is_some()
    }

    /// Sends a request, and reads up to the point of the disconnect.
    fn ask(&self, client: Client) -> impl Future<Output = ()> + Send + use<> {
        let request = chat(&self.model(), money::TEXT);
        let (is_stream, pieces) = (self.stream, self.pieces());
        async move {
            if !is_stream {
                client.post("/chat", &request).await;
                return;
            }
            let mut stream = client.stream("/chat", &request).await;
            for _ in 0..pieces {
                stream.next_chunk().await;
            }
        }
    }
}
