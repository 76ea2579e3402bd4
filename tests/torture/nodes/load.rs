//! Requests on raw connections, whose clients cost little beside the measured servers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use tests::ledger::random::Random;
use tests::raw::read_response;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Requests of users to nodes, over connections that are spread over the nodes.
pub(super) struct Load<'a> {
    nodes: Vec<SocketAddr>,
    keys: &'a [String],
    body: String,
    order: Order,
    random: RefCell<Random>,
    next: Cell<usize>,
}

/// The order of users.
pub(super) enum Order {
    Random,
    InTurn,
}

/// The pace of a load.
pub(super) enum Pace {
    /// Each connection sends a request when it has the last response.
    Closed,
    /// So many requests a second begin, as long as a connection is free.
    PerSecond(f64),
}

/// The responses to a load.
#[derive(Default)]
pub(super) struct Answers {
    pub served: Vec<Served>,
    /// Other responses by status; 0 for a lost connection.
    pub failed: BTreeMap<u16, usize>,
}

/// A response with status 200.
#[derive(Clone, Copy)]
pub(super) struct Served {
    /// The number of its node.
    pub node: usize,
    /// The time of its end.
    pub at: Instant,
    /// The time since the request was due.
    pub took: Duration,
}

impl<'a> Load<'a> {
    pub(super) fn new(nodes: Vec<SocketAddr>, keys: &'a [String], model: &str, text: &str) -> Self {
        let body = json!({ "model": model, "messages": [{ "role": "user", "content": text }] });
        Self {
            nodes,
            keys,
            body: body.to_string(),
            order: Order::Random,
            random: RefCell::new(Random::new(1)),
            next: Cell::new(0),
        }
    }

    pub(super) fn in_order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Sends requests over so many connections while `goes_on` returns true, which is asked before each request with the
    /// status of the connection's last response, if any. Keeps the responses while `is_counting` is set.
    pub(super) async fn send(
        &self,
        connections: usize,
        pace: &Pace,
        is_counting: &Cell<bool>,
        goes_on: impl Fn(Option<u16>) -> bool,
    ) -> Answers {
        let answers = RefCell::new(Answers::default());
        let (began, begun) = (Instant::now(), Cell::new(0_u32));
        let each = (0..connections).map(async |number| {
            let node = number % self.nodes.len();
            let mut connection = connect(self.nodes[node]).await;
            let mut buffer = Vec::with_capacity(16 << 10);
            let mut last = None;
            while goes_on(last) {
                let mut since = Instant::now();
                if let Pace::PerSecond(rate) = pace {
                    let due = began + Duration::from_secs_f64(f64::from(begun.get()) / rate);
                    begun.set(begun.get() + 1);
                    if due > since {
                        tokio::time::sleep_until(due.into()).await;
                        since = Instant::now();
                    } else {
                        since = due;
                    }
                }
                let response = async {
                    let request = self.request(node);
                    connection.write_all(request.as_bytes()).await?;
                    read_response(&mut connection, &mut buffer).await
                };
                let status = response.await.map_or(0, |response| response.status);
                last = Some(status);
                if status == 0 {
                    connection = connect(self.nodes[node]).await;
                }
                if is_counting.get() {
                    let mut answers = answers.borrow_mut();
                    match status {
                        200 => answers.served.push(Served {
                            node,
                            at: Instant::now(),
                            took: since.elapsed(),
                        }),
                        _ => *answers.failed.entry(status).or_default() += 1,
                    }
                }
            }
        });
        join_all(each).await;
        answers.into_inner()
    }

    fn request(&self, node: usize) -> String {
        let user = match self.order {
            Order::Random => self.random.borrow_mut().below(self.keys.len()),
            Order::InTurn => self.next.replace(self.next.get() + 1) % self.keys.len(),
        };
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{}",
            self.nodes[node],
            self.keys[user],
            self.body.len(),
            self.body
        )
    }
}

async fn connect(node: SocketAddr) -> TcpStream {
    let connection = TcpStream::connect(node).await.expect("the node listens");
    connection.set_nodelay(true).expect("it is open");
    connection
}
