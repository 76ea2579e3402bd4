//! The shares of one account, one upstream or one guest. `cargo torture W-B` and `N2` measure the same.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::Method;
use serde_json::json;
use tests::{Gate, Gateway, Reply, Upstream, chat, guests};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// A gateway on two threads, with twice as many concurrent loops as threads.
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
    // Loops take at least 250 ms of processor time each, asleep four fifths of it: on a starved runtime, hardly any
    // request would have been served meanwhile.
    assert!(served >= 20, "{served} requests were served");
}

#[tokio::test]
async fn an_account_has_no_more_turns_than_its_share() {
    let upstream = Upstream::start().await;
    let gates = [Gate::new(), Gate::new()];
    for gate in &gates {
        upstream.will(Reply::chat("slow").after_gate(gate));
    }
    upstream.always(Reply::chat("quick"));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[limits]\nrequests_per_account = { free = 2 }\n")
        .start()
        .await;
    let ask =
        |client: tests::Client| async move { client.post("/chat", &chat("scripted", "x")).await };
    let slow = [(); 2].map(|()| tokio::spawn(ask(gateway.client())));
    let mut slow: FuturesUnordered<_> = slow.into_iter().collect();
    for gate in &gates {
        gate.reached().await;
    }
    for path in ["/chat", "/code", "/v1/chat/completions"] {
        let refused = gateway.client().post(path, &chat("scripted", "x")).await;
        assert_eq!(refused.status, 429);
        assert_eq!(refused.headers["retry-after"], "1");
        if path == "/chat" {
            refused.error(429, "TOO_MANY_AT_ONCE");
        }
    }
    assert_eq!(upstream.count(), 2);
    // Other accounts have their own turns.
    assert_eq!(ask(gateway.web("bob")).await.content(), "quick");
    // A turn is free when its response is sent.
    for gate in &gates {
        gate.open();
        let slow = slow.next().await.expect("another").expect("no panic");
        assert_eq!(slow.content(), "slow");
        assert_eq!(ask(gateway.client()).await.content(), "quick");
    }
}

/// Each client sends its next request as soon as it has its response: a later release of the turn would be noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_has_an_answer_has_the_turn_back() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_stream(["a", "b"]));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[limits]\nrequests_per_account = { free = 1 }\n")
        .start()
        .await;
    for _ in 0..50 {
        let stream = gateway.stream("scripted", "x").await;
        assert_eq!(stream.status, 200);
        assert_eq!(stream.content().await, "ab");
        assert_eq!(gateway.chat("demo", "x").await.status, 200);
        gateway
            .chat("nothing", "x")
            .await
            .error(400, "UNKNOWN_MODEL");
        gateway
            .chat("demo", "/error rejected")
            .await
            .error(400, "UPSTREAM_REJECTED");
    }
}

#[tokio::test]
async fn an_upstream_that_stalls_leaves_turns_to_the_others() {
    let (stalled, second) = (Upstream::start().await, Upstream::start().await);
    let gate = Gate::new();
    stalled.will(Reply::chat("kept"));
    stalled.always(Reply::chat("at last").after_gate(&gate));
    second.always(Reply::chat("from the second"));
    let gateway = Gateway::builder()
        .provider("stalled", "openai", Some(&stalled))
        .provider("second", "openai", Some(&second))
        .model("alone", &["stalled"])
        .model("both", &["stalled", "second"])
        .tables("[limits]\nconcurrent_requests = 4\n")
        .start()
        .await;
    let ask = || {
        let client = gateway.client();
        tokio::spawn(async move { client.post("/chat", &chat("alone", "x")).await })
    };
    let keyed = async |key: &str| {
        let client = gateway.client().with_header("idempotency-key", key);
        client.post("/chat", &chat("alone", "x")).await
    };
    assert_eq!(keyed("first").await.content(), "kept");
    stalled.next_request().await;
    // Half of the turns.
    let held = [ask(), ask()];
    for _ in &held {
        stalled.next_request().await;
    }
    let refused = gateway.chat("alone", "x").await;
    refused.error(503, "UPSTREAM_BUSY");
    assert_eq!(refused.headers["retry-after"], "1");
    // A repeated key gets its response again, and a refused key is free.
    assert_eq!(keyed("first").await.content(), "kept");
    keyed("second").await.error(503, "UPSTREAM_BUSY");
    assert_eq!(gateway.chat("both", "x").await.content(), "from the second");
    assert_eq!(gateway.chat("demo", "x").await.status, 200);
    assert_eq!((stalled.count(), second.count()), (3, 1));
    gate.open();
    for answer in held {
        assert_eq!(answer.await.expect("no panic").content(), "at last");
    }
    assert_eq!(keyed("second").await.content(), "at last");
}

#[tokio::test]
async fn a_slot_has_its_share_of_turns_over_all_its_upstreams() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let gate = Gate::new();
    for upstream in [&first, &second] {
        upstream.always(Reply::chat("late").after_gate(&gate));
    }
    let gateway = Gateway::builder()
        .upstream("first", &first)
        .upstream("second", &second)
        .tables("[limits]\nrequests_per_slot = 2\n")
        .start()
        .await;
    let held = ["first", "second"].map(|model| {
        let client = gateway.client();
        tokio::spawn(async move { client.post("/chat", &chat(model, "x")).await })
    });
    first.next_request().await;
    second.next_request().await;
    for model in ["first", "second"] {
        gateway.chat(model, "x").await.error(503, "UPSTREAM_BUSY");
    }
    assert_eq!(gateway.chat("demo", "x").await.status, 200);
    gate.open();
    for answer in held {
        assert_eq!(answer.await.expect("no panic").content(), "late");
    }
}

#[tokio::test]
async fn the_waits_of_an_exchange_have_a_bound_together() {
    let gateway = Gateway::builder()
        .guest("hostile", guests::misbehaving(), None)
        .start()
        .await;
    for waits in [[1, 30_000], [4_000_000_000_u32, 0]] {
        let steps = waits.map(|wait| json!({ "Wait": wait }));
        let command = json!({ "behave": "script", "steps": steps });
        let answer = gateway.chat("hostile", &command.to_string()).await;
        answer.error(502, "ADAPTER_FAILED");
    }
    // The client's fault, and not the adapter's.
    let refused = gateway.chat("demo", "/slow 2 4000000000").await;
    refused.error(400, "UPSTREAM_REJECTED");
}

/// A body takes room as it arrives, and no account's bodies take all of it.
#[tokio::test]
async fn bodies_take_room_as_they_come_and_an_account_has_its_share() {
    let gateway = Gateway::builder()
        .tables("[limits]\nall_bodies_mib = 4\nbody_timeout_ms = 60000\nqueue_timeout_ms = 0\n")
        .start()
        .await;
    let begin = async |framing: &str, bytes: usize| {
        let mut socket = TcpStream::connect(gateway.address())
            .await
            .expect("it listens");
        let head = format!(
            "POST /chat HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {}\r\nContent-Type: application/json\r\n{framing}\r\n\r\n",
            gateway.address(),
            gateway.key()
        );
        socket.write_all(head.as_bytes()).await.expect("it reads");
        socket
            .write_all(format!("{bytes:x}\r\n").as_bytes())
            .await
            .expect("it reads");
        socket
            .write_all(" ".repeat(bytes).as_bytes())
            .await
            .expect("it reads");
        socket
    };
    // Each may have ten times the room, and announces more than that.
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(begin("Transfer-Encoding: chunked", 1_000).await);
        open.push(begin("Content-Length: 9000000", 1_000).await);
    }
    let large = format!("{}{}", chat("demo", "x"), " ".repeat(500 << 10));
    let ask = async |client: tests::Client| {
        let (json, body) = (Some("application/json"), large.clone().into());
        client.send(Method::POST, "/chat", json, body).await
    };
    assert_eq!(ask(gateway.client()).await.status, 200);
    // Nearly all of a quarter. If both arrive at once, either may be refused.
    let refused = async {
        loop {
            open.push(begin("Transfer-Encoding: chunked", 900 << 10).await);
            let answer = ask(gateway.client()).await;
            if answer.status != 200 {
                return answer;
            }
        }
    };
    let refused = tests::patiently(refused).await;
    refused.error(429, "TOO_MANY_AT_ONCE");
    assert_eq!(ask(gateway.web("bob")).await.status, 200);
    // Released with the connections.
    drop(open);
    tests::patiently(async { while ask(gateway.client()).await.status != 200 {} }).await;
}
