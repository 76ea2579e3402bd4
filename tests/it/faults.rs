//! Failures of an upstream in every form of request: the documented error, the right charge, and a fallback only if
//! the request cannot have been served.

use futures_util::{StreamExt as _, stream};
use http::Method;
use serde_json::{Value, json};
use tests::scenario::Scenario;
use tests::speaker::Speaker;
use tests::{Client, Gateway, Reply, Upstream, patiently};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

/// The cost of a complete response, in credits: 12 tokens of input at 1 USD a million and 7 of output at 2, times
/// 1.4.
const PRICE: f64 = 0.0364;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Refused,
    NoTls,
    Status(u16),
    LimitedFor(u16),
    SilentBefore,
    SilentAfter,
    ResetInside,
}

/// The client's result without a fallback.
struct Expected {
    status: u16,
    code: &'static str,
    /// The request falls back, if there is another upstream.
    gives_way: bool,
    /// Some output was delivered, and is charged.
    is_charged: bool,
}

const FAULTS: [Fault; 12] = [
    // The slowest goes first, beside all others.
    Fault::SilentBefore,
    Fault::Refused,
    Fault::NoTls,
    Fault::Status(401),
    Fault::Status(429),
    Fault::LimitedFor(60),
    Fault::Status(500),
    Fault::Status(502),
    Fault::Status(503),
    Fault::Status(529),
    Fault::SilentAfter,
    Fault::ResetInside,
];

impl Fault {
    fn expected(self, stream: bool) -> Expected {
        let expected = |status, code, gives_way, is_charged| Expected {
            status,
            code,
            gives_way,
            is_charged,
        };
        match self {
            Self::Refused | Self::NoTls | Self::LimitedFor(_) => {
                expected(503, "UPSTREAM_UNAVAILABLE", true, false)
            }
            Self::Status(401) => expected(502, "UPSTREAM_ERROR", true, false),
            Self::Status(_) => expected(503, "UPSTREAM_UNAVAILABLE", true, false),
            Self::SilentBefore => expected(504, "UPSTREAM_TIMEOUT", true, false),
            // The client has output of a stream, and nothing of a plain response.
            Self::SilentAfter => expected(504, "UPSTREAM_TIMEOUT", !stream, stream),
            Self::ResetInside => expected(502, "UPSTREAM_ERROR", false, stream),
        }
    }

    /// Time limits of the missing step; all other steps have the time that they need.
    fn timeouts(self) -> &'static str {
        match self {
            Self::SilentBefore => "timeouts = { first_byte_ms = 400, first_token_ms = 200 }",
            Self::SilentAfter => "timeouts = { idle_ms = 300 }",
            _ => "",
        }
    }

    /// Time limit of a non-streamed request, which alone bounds a response without output; shorter than a client's
    /// wait for a fallback.
    fn total_ms(self) -> u32 {
        match self {
            Self::SilentBefore => 2_500,
            _ => 20_000,
        }
    }

    /// The upstream's response, if it is reachable.
    fn reply(self, stream: bool) -> Option<Reply> {
        let whole = Scenario::Text.reply("openai", stream).expect("an answer");
        // In a stream, after its first event and within the next.
        let half = whole.whole_body().len() / 2;
        match self {
            Self::Refused | Self::NoTls => None,
            Self::Status(status) => Some(Reply::error(status, "not now")),
            Self::LimitedFor(seconds) => {
                let limited = Reply::error(429, "not now");
                Some(limited.header("retry-after", &seconds.to_string()))
            }
            Self::SilentBefore => Some(Reply::never()),
            Self::SilentAfter => Some(whole.silent_after(half)),
            Self::ResetInside => Some(whole.reset_after(half)),
        }
    }
}

/// Sends bytes that no TLS server would send.
async fn speaks_no_tls() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let _ = connection
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .await;
        }
    });
    format!("https://{address}")
}

async fn nobody_listens() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    format!("http://{}", listener.local_addr().expect("an address"))
}

/// The client's view of a failed request.
#[derive(Debug)]
struct Failed {
    /// `None` for a stream that had begun.
    status: Option<u16>,
    error: Value,
}

async fn ask(speaker: Speaker, client: &Client, model: &str, stream: bool) -> Result<(), Failed> {
    let question = speaker.question(model, "Hello", stream);
    if !stream {
        let answer = client.post(&speaker.path(model, false), &question).await;
        return match answer.status.as_u16() {
            200 => Ok(()),
            status => Err(Failed {
                status: Some(status),
                error: speaker.error(&answer),
            }),
        };
    }
    let path = speaker.path(model, true);
    let answer = client.follow(Method::POST, &path, &question).await;
    let status = answer.status.as_u16();
    if status != 200 {
        let text = answer.try_json().await;
        return Err(Failed {
            status: Some(status),
            error: text["error"].clone(),
        });
    }
    let events = answer.rest().await;
    match speaker.error_event(&events) {
        None => Ok(()),
        Some(error) => Err(Failed {
            status: None,
            error,
        }),
    }
}

async fn available(client: &Client) -> f64 {
    let balances = client
        .post("/billing/sync-balance", &json!({}))
        .await
        .json();
    balances["available_credits"].as_f64().expect("a number")
}

/// The names of a case's models: with the failing provider alone, and with another one.
fn models_of(speaker: Speaker, stream: bool) -> (String, String) {
    let case = format!("{speaker:?}-{stream}").to_lowercase();
    (format!("alone-{case}"), format!("both-{case}"))
}

/// How many faults are tested at once: they mostly wait.
const AT_ONCE: usize = 4;

#[tokio::test]
async fn each_fault_is_told_charged_and_tried_again_as_documented() {
    let mut tests = stream::iter(FAULTS.map(test_fault)).buffer_unordered(AT_ONCE);
    while tests.next().await.is_some() {}
}

async fn test_fault(fault: Fault) {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let base_url = match fault {
        Fault::Refused => nobody_listens().await,
        Fault::NoTls => speaks_no_tls().await,
        _ => first.base_url(),
    };
    let mut gateway = Gateway::builder()
        .tables(&format!(
            "[timeouts]\ntotal_ms = {}\n[providers.first]\nadapter = \"openai\"\nbase_url = {base_url:?}\n{}\n",
            fault.total_ms(),
            fault.timeouts()
        ))
        .provider("second", "openai", Some(&second));
    // Each case has models of its own, because the failures of another case would open their breakers.
    for speaker in Speaker::ALL {
        for stream in [false, true] {
            let (alone, both) = models_of(speaker, stream);
            gateway = gateway
                .model(&alone, &["first"])
                .model(&both, &["first", "second"]);
        }
    }
    let gateway = gateway.start().await;
    let client = gateway.client();
    for speaker in Speaker::ALL {
        for stream in [false, true] {
            let case = format!("{fault:?} to {speaker:?}, streamed: {stream}");
            let (alone, both) = models_of(speaker, stream);
            let expected = fault.expected(stream);
            if let Some(reply) = fault.reply(stream) {
                first.always(reply);
            }
            let before = available(&client).await;
            let told = ask(speaker, &client, &alone, stream).await;
            let failed = told.expect_err(&case);
            assert_eq!(
                speaker.code(&failed.error),
                expected.code,
                "{case}: {failed:?}"
            );
            let has_begun = expected.is_charged;
            let status = (!has_begun).then(|| speaker.status(expected.status));
            assert_eq!(failed.status, status, "{case}");
            let charged = before - available(&client).await;
            match has_begun {
                true => assert!(charged > 0.0 && charged <= PRICE, "{case}: {charged}"),
                false => assert!(charged == 0.0, "{case}: {charged}"),
            }

            second.always(Scenario::Text.reply("openai", stream).expect("an answer"));
            let (before, calls) = (available(&client).await, second.count());
            let told = ask(speaker, &client, &both, stream).await;
            assert_eq!(told.is_ok(), expected.gives_way, "{case}: {told:?}");
            assert_eq!(
                second.count() - calls,
                usize::from(expected.gives_way),
                "{case}"
            );
            let charged = before - available(&client).await;
            if expected.gives_way {
                assert!((charged - PRICE).abs() < 1e-9, "{case}: {charged}");
            }
        }
    }
    drop(gateway);
    // No connection remains.
    patiently(second.until_all_closed()).await;
}
