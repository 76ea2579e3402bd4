//! The loads of the benches `gateway` and `instructions`: clients, a scripted upstream, a proxy that only forwards (hyper,
//! no parsing, no authentication: the floor) and weir. Each server is a separate process.
//!
//! A bench runs itself for the upstream and the proxy: see [`play_role`].

mod roles;
mod weir;

use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tests::raw::read_response;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

pub(crate) use self::roles::play_role;
pub(crate) use self::weir::{create_keys, serve, write_settings};

/// The core of the measured process, and the core of all others.
pub(crate) const CORE: &str = "0";
pub(crate) const OTHER_CORE: &str = "1";

pub(crate) const PATH: &str = "/v1/chat/completions";

/// A kind of request.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) name: &'static str,
    /// The upstream's behaviour: `plain`, `burst`, `paced` or `held`.
    pub(crate) model: &'static str,
    pub(crate) prompt: Prompt,
}

#[derive(Clone, Copy)]
pub(crate) enum Prompt {
    /// One message of this size in bytes.
    Message(usize),
    /// The prompt of an agent that has called tools for a while: 100 KiB, 40 messages and 20 tools.
    Agent,
}

pub(crate) const LOADS: [Load; 5] = [
    Load {
        name: "plain, 1 KiB",
        model: "plain",
        prompt: Prompt::Message(1 << 10),
    },
    Load {
        name: "plain, 16 KiB prompt",
        model: "plain",
        prompt: Prompt::Message(16 << 10),
    },
    Load {
        name: "burst stream, 100 chunks at once",
        model: "burst",
        prompt: Prompt::Message(1 << 10),
    },
    Load {
        name: "paced stream, a chunk each 2 ms",
        model: "paced",
        prompt: Prompt::Message(1 << 10),
    },
    Load {
        name: "agent, 100 KiB prompt",
        model: "plain",
        prompt: Prompt::Agent,
    },
];

impl Load {
    fn body(self) -> String {
        let (messages, tools) = match self.prompt {
            Prompt::Message(bytes) => (
                vec![json!({ "role": "user", "content": words(bytes) })],
                None,
            ),
            Prompt::Agent => (agent_messages(), Some(agent_tools())),
        };
        let mut body = json!({
            "model": self.model, "stream": self.model != "plain", "messages": messages,
        });
        if let Some(tools) = tools {
            body["tools"] = tools;
        }
        body.to_string()
    }
}

pub(crate) fn words(bytes: usize) -> String {
    "word ".repeat(bytes / 5)
}

/// Returns the instructions, the task, and 19 calls with their results.
fn agent_messages() -> Vec<Value> {
    let mut messages = vec![
        json!({ "role": "system", "content": words(8_000) }),
        json!({ "role": "user", "content": words(1_000) }),
    ];
    for number in 0..19 {
        let id = format!("call_{number}");
        let arguments = json!({ "path": format!("src/file_{number}.rs"), "limit": 100 });
        messages.push(json!({
            "role": "assistant", "content": words(100),
            "tool_calls": [{
                "id": id, "type": "function",
                "function": { "name": format!("tool_{number}"), "arguments": arguments.to_string() },
            }],
        }));
        // Source code has characters that JSON escapes.
        let content = "    println!(\"{line}\");\n".repeat(90);
        messages.push(json!({ "role": "tool", "tool_call_id": id, "content": content }));
    }
    messages
}

fn agent_tools() -> Value {
    (0..20)
        .map(|number| {
            json!({
                "type": "function",
                "function": {
                    "name": format!("tool_{number}"), "description": words(1_200),
                    "parameters": {
                        "type": "object", "required": ["path"], "additionalProperties": false,
                        "properties": {
                            "path": { "type": "string", "description": words(200) },
                            "limit": { "type": "integer", "minimum": 1, "maximum": 1_000 },
                            "mode": { "type": "string", "enum": ["lines", "bytes"], "description": words(100) },
                        },
                    },
                },
            })
        })
        .collect()
}

/// The requests of a load. Each has the next of the keys.
pub(crate) struct Requests<'a> {
    pub(crate) address: SocketAddr,
    path: &'a str,
    keys: &'a [String],
    body: String,
    sent: Cell<usize>,
}

impl<'a> Requests<'a> {
    /// To weir, or through the proxy to the upstream if `path` begins with the model's name.
    pub(crate) fn new(address: SocketAddr, path: &'a str, keys: &'a [String], load: Load) -> Self {
        Self::with_body(address, path, keys, load.body())
    }

    pub(crate) fn with_body(
        address: SocketAddr,
        path: &'a str,
        keys: &'a [String],
        body: String,
    ) -> Self {
        Self {
            address,
            path,
            keys,
            body,
            sent: Cell::new(0),
        }
    }

    /// Sends the next request.
    pub(crate) async fn send(&self, connection: &mut TcpStream) {
        let number = self.sent.replace(self.sent.get() + 1);
        let request = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{}",
            self.path,
            self.address,
            self.keys[number % self.keys.len()],
            self.body.len(),
            self.body
        );
        connection.write_all(request.as_bytes()).await.unwrap();
    }
}

/// Clients on connections of their own.
pub(crate) struct Clients(Vec<TcpStream>);

impl Clients {
    pub(crate) async fn connect(address: SocketAddr, connections: usize) -> Self {
        let connect = async || {
            let connection = TcpStream::connect(address).await.unwrap();
            connection.set_nodelay(true).unwrap();
            connection
        };
        Self(join_all((0..connections).map(|_| connect())).await)
    }

    /// Sends requests on all connections, on each as fast as the responses arrive, while `goes_on` returns true. After each
    /// response, calls `on_response` with the times of the request and of the response's first bytes.
    pub(crate) async fn send(
        &mut self,
        requests: &Requests<'_>,
        goes_on: impl Fn() -> bool,
        on_response: impl Fn(Instant, Instant),
    ) {
        let each = self.0.iter_mut().map(async |connection| {
            let mut buffer = Vec::with_capacity(64 << 10);
            while goes_on() {
                let began = Instant::now();
                requests.send(connection).await;
                let response = read_response(connection, &mut buffer).await.unwrap();
                assert_eq!(response.status, 200, "{}", String::from_utf8_lossy(&buffer));
                on_response(began, response.first);
            }
        });
        join_all(each).await;
    }
}

/// Time in which a process ends by itself.
const ENDING: Duration = Duration::from_secs(10);

/// A process that ends with this one.
pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // A program that records its own profile writes it when it ends by itself.
        let _ = Command::new("kill").arg(self.id()).status();
        let asked = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && asked.elapsed() < ENDING {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

impl Process {
    /// Runs this program in another role, by the command `launcher`; returns its address.
    pub(crate) fn role(launcher: &[String], role: &str, to: &str) -> (Self, SocketAddr) {
        let mut child = Command::new(&launcher[0])
            .args(&launcher[1..])
            .arg(std::env::current_exe().unwrap())
            .args(["--role", role, to])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        (Self(child), line.trim().parse().unwrap())
    }

    pub(crate) fn id(&self) -> String {
        self.0.id().to_string()
    }
}

/// The launcher of a process on this core, and so with the threads of a machine with one core.
pub(crate) fn on_core(core: &str) -> Vec<String> {
    ["taskset", "--cpu-list", core].map(str::to_owned).into()
}

pub(crate) fn pin(process: &str, core: &str) {
    let pinned = Command::new("taskset")
        .args(["--all-tasks", "--cpu-list", "--pid", core, process])
        .stdout(Stdio::null())
        .status()
        .expect("taskset runs: Debian's util-linux has it");
    assert!(pinned.success());
}

/// Returns the argument after `name`.
pub(crate) fn option<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let at = arguments.iter().position(|argument| argument == name)?;
    Some(&arguments[at + 1])
}

/// A runtime on this thread.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}
