//! `OidcServer`: a certified OpenID provider, `oidc-provider` on Node, for services that get tokens by the client
//! credentials grant, and for people who sign in at weir's console.
//!
//! Its behaviour is in `tests/oidc/server.mjs`. The server ends with its standard input, so that it never outlives
//! the tests.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::Client;

/// The audience of its tokens, unless a request names another as `resource`.
pub const AUDIENCE: &str = "https://api.example";

/// The server. Killed when dropped.
pub struct OidcServer {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    address: SocketAddr,
    state: State,
}

/// A service with credentials at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OidcClient {
    /// The client's id, and the `sub` of its tokens.
    pub id: &'static str,
    /// Its secret.
    pub secret: &'static str,
    /// The `email` of its tokens, which say that it is verified.
    pub email: &'static str,
    /// The scopes that it may ask for.
    pub scope: &'static str,
    /// The algorithm of its tokens.
    pub algorithm: &'static str,
}

/// A service with access.
pub const ROBOT: OidcClient = OidcClient {
    id: "robot",
    secret: "robot-secret-9876543210",
    email: "robot@example.iam",
    scope: "model:call swarm:run",
    algorithm: "RS256",
};

/// Another service with access, another algorithm, and fewer permissions.
pub const CALLER: OidcClient = OidcClient {
    id: "caller",
    secret: "caller-secret-9876543210",
    email: "caller@example.iam",
    scope: "model:call",
    algorithm: "ES256",
};

/// A service without access.
pub const STRANGER: OidcClient = OidcClient {
    id: "stranger",
    secret: "stranger-secret-9876543210",
    email: "stranger@example.iam",
    scope: "model:call swarm:run",
    algorithm: "RS256",
};

/// The client of weir's console. Its secret has characters that a request must encode.
pub const CONSOLE: (&str, &str) = ("console", "console+secret:%9876543210/");

/// The program. Node reads it as text, so that it looks for modules in the working directory and not beside the
/// source.
const PROGRAM: &str = include_str!("../oidc/server.mjs");

impl OidcServer {
    /// Starts a server with new keys.
    pub fn start() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("the workspace")
            .join("target/oidc");
        let clients = [ROBOT, CALLER, STRANGER].map(|client| {
            json!({
                "id": client.id, "secret": client.secret, "email": client.email,
                "scope": client.scope, "algorithm": client.algorithm,
            })
        });
        let settings = json!({ "audience": AUDIENCE, "clients": clients });
        let mut child = Command::new(node(&folder))
            .args(["--input-type=module", "--eval", PROGRAM])
            .arg(settings.to_string())
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node runs");
        let orders = child.stdin.take().expect("piped");
        let mut answers = BufReader::new(child.stdout.take().expect("piped"));
        let state = State::read(&mut answers);
        let address = state.issuer.strip_prefix("http://");
        let address = address.and_then(|address| address.parse().ok());
        Self {
            address: address.expect("an address without a path"),
            child,
            orders,
            answers,
            state,
        }
    }

    /// Returns its name, which is also its address: `http://127.0.0.1:…`, without a path.
    pub fn issuer(&self) -> &str {
        &self.state.issuer
    }

    /// Returns the URL of its token endpoint.
    pub fn token_url(&self) -> String {
        format!("{}/token", self.state.issuer)
    }

    /// Returns the names of its keys: `kid`.
    pub fn keys(&self) -> &[String] {
        &self.state.keys
    }

    /// Returns a token for a client with these scopes: names separated by spaces, or empty.
    pub async fn token(&self, client: OidcClient, scope: &str) -> String {
        self.token_for(AUDIENCE, client, scope).await
    }

    /// Returns a token for another audience, which is a URL.
    pub async fn token_for(&self, audience: &str, client: OidcClient, scope: &str) -> String {
        let credentials = STANDARD.encode(format!("{}:{}", client.id, client.secret));
        let scope = scope.replace(' ', "+");
        let form = format!("grant_type=client_credentials&scope={scope}&resource={audience}");
        let answer = Client::new(self.address)
            .with_header("authorization", &format!("Basic {credentials}"))
            .send(
                Method::POST,
                "/token",
                Some("application/x-www-form-urlencoded"),
                form.into(),
            )
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        match &answer.json()["access_token"] {
            Value::String(token) => token.clone(),
            _ => panic!("no token: {}", answer.text()),
        }
    }

    /// Replaces all its keys. The old ones are no longer published.
    pub fn rotate(&mut self) {
        self.order("rotate");
    }

    /// Sets the claims of a person, whose name is `sub`.
    pub fn set_account(&mut self, claims: &Value) {
        self.order(&json!({ "account": claims }).to_string());
    }

    /// Registers [`CONSOLE`] for gateways at these addresses. The first one gets logout tokens.
    pub fn register_console(&mut self, gateways: &[SocketAddr]) {
        let (id, secret) = CONSOLE;
        let at = |path: &str| -> Vec<String> {
            let urls = gateways.iter();
            urls.map(|address| format!("http://{address}/console/sign-in{path}"))
                .collect()
        };
        let metadata = json!({
            "client_id": id,
            "client_secret": secret,
            "redirect_uris": at("/callback"),
            "post_logout_redirect_uris": at(""),
            "backchannel_logout_uri": at("/backchannel-logout")[0],
            "backchannel_logout_session_required": true,
        });
        self.order(&json!({ "client": metadata }).to_string());
    }

    fn order(&mut self, order: &str) {
        let line = format!("{order}\n");
        self.orders.write_all(line.as_bytes()).expect("it is there");
        self.state = State::read(&mut self.answers);
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for OidcServer {
    fn drop(&mut self) {
        // Killed by its id, which stays reserved until the wait.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server's output when it listens, and after an order.
struct State {
    issuer: String,
    keys: Vec<String>,
}

impl State {
    fn read(answers: &mut BufReader<ChildStdout>) -> Self {
        let mut line = String::new();
        answers.read_line(&mut line).expect("it is there");
        let answer: Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{error}: the server said {line:?}"));
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        Self {
            issuer: text(&answer["issuer"]),
            keys: answer["keys"]
                .as_array()
                .expect("a list")
                .iter()
                .map(text)
                .collect(),
        }
    }
}

/// The Node that `tests/run` installs beside the provider.
fn node(folder: &Path) -> PathBuf {
    let processor = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => panic!("there is no Node for {other} in tests/oidc/package.json"),
    };
    let node = folder.join(format!("node_modules/node-linux-{processor}/bin/node"));
    assert!(
        node.exists(),
        "{} is missing; run tests/run",
        node.display()
    );
    node
}
