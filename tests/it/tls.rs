//! TLS at the public port: its protocols, and its certificate, which changes while weir runs.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tempfile::TempDir;
use tests::gateway::share_compiled_plugins;
use tests::http2::connect_by_tls;
use tests::stores::{PASSWORD, Redis};
use tests::{Gate, Gateway, Http2, Reply, Upstream, chat, patiently};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cli::{run, text, weir};

const ONE: &[u8] = include_bytes!("../tls/one.pem");
const TWO: &[u8] = include_bytes!("../tls/two.pem");
const KEYS: [(&[u8], &[u8]); 2] = [
    (ONE, include_bytes!("../tls/one.key")),
    (TWO, include_bytes!("../tls/two.key")),
];

/// Puts a pair of files into a folder, or a mismatched pair.
fn place(folder: &Path, certificate: &[u8], key: &[u8]) {
    for (name, bytes) in [("cert.pem", certificate), ("key.pem", key)] {
        // As certificate managers do: never half a file.
        let new = folder.join("new");
        fs::write(&new, bytes).expect("the folder can be written");
        fs::rename(new, folder.join(name)).expect("the folder can be written");
    }
}

fn table(folder: &Path) -> String {
    let file = |name| folder.join(name).display().to_string();
    format!(
        "[tls]\ncertificate = {:?}\nkey = {:?}\n",
        file("cert.pem"),
        file("key.pem")
    )
}

async fn secured(upstream: &Upstream, tables: &str) -> (Gateway, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    place(folder.path(), KEYS[0].0, KEYS[0].1);
    let gateway = Gateway::builder()
        .settings("dev = false")
        .upstream("scripted", upstream)
        .tables(&table(folder.path()))
        .tables(tables);
    (gateway.start().await, folder)
}

#[tokio::test]
async fn both_versions_are_spoken_over_tls_by_alpn() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_stream(["one ", "two"]));
    let (gateway, _folder) = secured(&upstream, "").await;
    let connect =
        async |protocols: &[&str]| connect_by_tls(gateway.address(), ONE, protocols).await;
    let stream = connect(&["h2", "http/1.1"]).await.expect("it speaks TLS");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let client = Http2::over(stream, "localhost")
        .await
        .with_key(gateway.key());
    let streams = client.stream("/chat", &chat("scripted", "count")).await;
    assert_eq!(streams.content().await, "one two");
    for protocols in [&["http/1.1"][..], &[]] {
        let mut stream = connect(protocols).await.expect("it speaks TLS");
        let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        assert_eq!(agreed.is_some(), !protocols.is_empty());
        let request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.expect("it reads");
        let mut answer = String::new();
        patiently(stream.read_to_string(&mut answer))
            .await
            .expect("text");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    assert!(connect(&["spdy/3"]).await.is_err());
    // The port refuses plain text.
    let mut plain = TcpStream::connect(gateway.address())
        .await
        .expect("it listens");
    plain
        .write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .expect("it reads");
    let mut answer = Vec::new();
    let _ = patiently(plain.read_to_end(&mut answer)).await;
    assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");
}

/// A handshake that does not begin, or does not finish, holds no resources for long.
#[tokio::test]
async fn a_handshake_is_not_waited_for_longer_than_a_head() {
    let upstream = Upstream::start().await;
    let (gateway, _folder) = secured(&upstream, "[limits]\nhead_timeout_ms = 300\n").await;
    for said in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
        let mut socket = TcpStream::connect(gateway.address())
            .await
            .expect("it listens");
        socket.write_all(said).await.expect("it reads");
        let mut answer = Vec::new();
        let _ = patiently(socket.read_to_end(&mut answer)).await;
        assert_eq!(answer, b"");
    }
    // Malformed headers get a response over TLS as without it.
    let mut stream = connect_by_tls(gateway.address(), ONE, &["http/1.1"])
        .await
        .expect("TLS");
    stream.write_all(b"GET /he").await.expect("it reads");
    let mut answer = String::new();
    patiently(stream.read_to_string(&mut answer))
        .await
        .expect("text");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_new_connections_and_old_ones_go_on() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat_stream(["one ", "two"]).gate_before_piece(1, &gate));
    let (gateway, folder) = secured(&upstream, "").await;
    let connect = async |certificate| connect_by_tls(gateway.address(), certificate, &["h2"]).await;
    let stream = connect(ONE).await.expect("the first one");
    let client = Http2::over(stream, "localhost")
        .await
        .with_key(gateway.key());
    let mut stream = client.stream("/chat", &chat("scripted", "count")).await;
    stream.next_chunk().await;
    assert!(connect(TWO).await.is_err());
    place(folder.path(), KEYS[1].0, KEYS[1].1);
    let renewed = patiently(async {
        loop {
            if let Ok(stream) = connect(TWO).await {
                return stream;
            }
        }
    });
    let renewed = renewed.await;
    let shown = renewed.get_ref().1.peer_certificates().expect("one");
    assert_eq!(
        shown[0],
        CertificateDer::from_pem_slice(TWO).expect("a certificate")
    );
    assert!(connect(ONE).await.is_err());
    gate.open();
    assert_eq!(stream.content().await, "two");
}

/// `weir serve` with these files in its folder.
struct Serving {
    child: Child,
    folder: TempDir,
}

impl Serving {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        place(folder.path(), KEYS[0].0, KEYS[0].1);
        let toml = format!("dev = false\n{}", table(folder.path()));
        fs::write(folder.path().join("weir.toml"), toml).expect("a file");
        share_compiled_plugins(&folder.path().join(".weir"));
        let child = weir(folder.path())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::null())
            .stderr(File::create(folder.path().join("log")).expect("a file"))
            .spawn()
            .expect("weir runs");
        Self { child, folder }
    }

    /// Waits for a log line with this text, and returns it.
    async fn logged(&self, part: &str) -> String {
        patiently(async {
            loop {
                let log = fs::read_to_string(self.folder.path().join("log")).expect("text");
                if let Some(line) = log.lines().find(|line| line.contains(part)) {
                    return line.to_owned();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn files_that_do_not_fit_are_not_taken_up_and_the_log_says_so() {
    let serving = Serving::start().await;
    let ready = serving.logged(" ready").await;
    let address = ready.split("address=").nth(1).expect("an address");
    let address = address.split_whitespace().next().expect("an address");
    let address = address.parse().expect("an address");
    let connect = async |certificate| connect_by_tls(address, certificate, &["h2"]).await;
    assert!(connect(ONE).await.is_ok());
    // One's certificate with the other's key.
    place(serving.folder.path(), KEYS[1].0, KEYS[0].1);
    let line = serving.logged("are invalid").await;
    assert!(
        line.contains("ERROR") && line.contains("is not the key of"),
        "{line}"
    );
    assert!(connect(ONE).await.is_ok() && connect(TWO).await.is_err());
    fs::remove_file(serving.folder.path().join("key.pem")).expect("it was there");
    serving.logged("`tls.key`: reading").await;
    assert!(connect(ONE).await.is_ok());
    place(serving.folder.path(), KEYS[1].0, KEYS[1].1);
    serving.logged("reloaded the certificate").await;
    assert!(connect(TWO).await.is_ok() && connect(ONE).await.is_err());
}

#[test]
fn neither_serve_nor_check_takes_a_certificate_that_does_not_fit() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    share_compiled_plugins(&folder.join(".weir"));
    let toml = format!("dev = false\n{}", table(folder));
    fs::write(folder.join("weir.toml"), &toml).expect("a file");
    let refusals = |part: &str| {
        for command in [&["check"][..], &["serve", "--listen", "127.0.0.1:0"]] {
            let refused = run(folder, command);
            let said = text(&refused.stderr);
            assert!(
                !refused.status.success() && said.contains(part),
                "{command:?}: {said}"
            );
        }
    };
    refusals("`tls.certificate`: reading");
    place(folder, b"nothing", KEYS[0].1);
    refusals("cert.pem has no certificate in PEM");
    place(folder, ONE, ONE);
    refusals("key.pem has no private key in PEM");
    place(folder, ONE, KEYS[1].1);
    refusals("key.pem is not the key of");
    place(folder, ONE, KEYS[0].1);
    let sound = run(folder, &["check"]);
    assert!(sound.status.success(), "{}", text(&sound.stderr));
    fs::write(folder.join("weir.toml"), table(folder)).expect("a file");
    refusals("`tls` is set, but development mode");
}

/// As the deployment guide says of private certificate authorities.
#[tokio::test(flavor = "multi_thread")]
async fn ssl_cert_file_names_the_trusted_authorities() {
    let (gateway, certificates) = secured(&Upstream::start().await, "").await;
    let folder = tempfile::tempdir().expect("a folder");
    share_compiled_plugins(&folder.path().join(".weir"));
    let toml = format!(
        "[providers.private]\nadapter = \"openai\"\nbase_url = \"https://localhost:{}/v1\"\n\
         [models.local]\ncontext_window = 1000\nmax_output_tokens = 100\ndefault_output_tokens = 100\n\
         upstreams = [{{ provider = \"private\", model = \"m\" }}]\nprice = {{ input = 1, output = 1 }}\n",
        gateway.address().port()
    );
    fs::write(folder.path().join("weir.toml"), toml).expect("a file");
    let probe = |authorities| probe(folder.path(), "provider private", authorities);
    let unknown = probe(None);
    assert!(unknown.contains("certificate"), "{unknown}");
    let known = probe(Some(&certificates.path().join("cert.pem")));
    assert!(known.contains("reached"), "{known}");
}

/// The line of `weir check --probe` about a part, with the authorities of a file alone.
fn probe(folder: &Path, part: &str, authorities: Option<&Path>) -> String {
    let mut command = weir(folder);
    command
        .env_remove("SSL_CERT_FILE")
        .env_remove("SSL_CERT_DIR");
    command.envs(authorities.map(|file| ("SSL_CERT_FILE", file)));
    let probed = command.args(["check", "--probe"]).output();
    let probed = probed.expect("weir runs");
    let said = text(&probed.stdout) + &text(&probed.stderr);
    let line = said.lines().find(|line| line.contains(part));
    line.unwrap_or_else(|| panic!("{said}")).to_owned()
}

/// One server, and a node of a cluster.
#[test]
fn redis_is_reached_over_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    place(folder.path(), ONE, KEYS[0].1);
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (certificate, key) = (file("cert.pem"), file("key.pem"));
    for scheme in ["rediss", "rediss-cluster"] {
        let is_cluster = scheme == "rediss-cluster";
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = port.expect("a free port").port();
        let redis = Redis::start_with(&[
            &["--tls-port", &port.to_string(), "--tls-auth-clients", "no"],
            &["--tls-cert-file", &certificate, "--tls-key-file", &key],
            &["--tls-ca-cert-file", &certificate],
            &["--cluster-enabled", if is_cluster { "yes" } else { "no" }],
            // Otherwise, nodes announce their other port: https://redis.io/docs/latest/operate/oss_and_stack/management/security/encryption/
            &["--tls-cluster", if is_cluster { "yes" } else { "no" }],
            // The default, the port plus 10,000, may be none.
            &["--cluster-port", &(port / 2 + 1_024).to_string()],
        ]);
        if is_cluster {
            let added = redis.command("CLUSTER ADDSLOTSRANGE 0 16383");
            assert!(added.ends_with("+OK\r\n"), "{added}");
            // A cluster serves two seconds after its start.
            let until = Instant::now() + Duration::from_secs(20);
            while !redis.command("SET {weir}:x 1").ends_with("+OK\r\n") {
                assert!(Instant::now() < until, "it never serves");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let url = format!("{scheme}://:{PASSWORD}@127.0.0.1:{port}");
        let toml = format!("dev = true\ndefault_catalog = false\nredis_url = {url:?}\n");
        fs::write(folder.path().join("weir.toml"), toml).expect("a file");
        let probe = |authorities| probe(folder.path(), "cache rediss", authorities);
        let unknown = probe(None);
        assert!(unknown.contains("certificate"), "{unknown}");
        let known = probe(Some(Path::new(&certificate)));
        assert!(known.contains("accepts writes"), "{known}");
    }
}
