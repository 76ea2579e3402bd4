//! Guests that loop beside healthy requests. `cargo torture W-B` measures the same.

use serde_json::json;
use tests::{Gateway, guests};

/// A gateway on two threads, with twice as many loops as threads at any time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn healthy_requests_are_served_beside_more_loops_than_threads() {
    let gateway = Gateway::builder()
        .guest("hostile", guests::misbehaving(), None)
        .start()
        .await;
    let spin = json!({ "behave": "spin" }).to_string();
    let loops = async {
        let answers = (0..4).map(|_| gateway.chat("hostile", &spin));
        for answer in futures_util::future::join_all(answers).await {
            answer.error(502, "ADAPTER_FAILED");
        }
    };
    let mut loops = std::pin::pin!(loops);
    let mut served = 0;
    loop {
        tokio::select! {
            biased;
            () = &mut loops => break,
            answer = gateway.chat("demo", "hello") => {
                assert_eq!(answer.content(), "You said: hello");
                served += 1;
            }
        }
    }
    // Loops take at least 250 ms of processor time each, asleep four fifths of it: on a runtime
    // that they starved, next to nothing would have been served meanwhile.
    assert!(served >= 20, "{served} requests were served");
}
