//! Sessions: earlier messages precede the new ones, for their user alone.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{Connection, Executor, Row};
use tempfile::TempDir;
use tests::gateway::Builder;
use tests::stores::{Durability, Postgres, Redis};
use tests::{Client, Gate, Gateway, Reply, Upstream, chat, patiently};
use tokio::task::JoinSet;
use weir_storage::clock::ManualClock;

/// Runs a test with sessions in SQLite, in PostgreSQL, and in Redis.
async fn on_each(test: impl AsyncFn(Builder, Upstream)) {
    let postgres = Postgres::shared().create_database().await;
    let redis = Redis::start();
    for builder in [
        Gateway::builder(),
        Gateway::builder().postgres(&postgres),
        Gateway::builder().redis(&redis.url()),
    ] {
        let upstream = Upstream::start().await;
        test(builder.upstream("scripted", &upstream), upstream).await;
    }
}

fn question(session: &str, text: &str) -> Value {
    let mut question = chat("scripted", text);
    question["session_id"] = json!(session);
    question
}

async fn say(client: &Client, session: &str, text: &str) {
    let answer = client.post("/chat", &question(session, text)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Returns a session's history: each message's role and text.
async fn history(client: &Client, session: &str) -> Vec<(String, String)> {
    let answer = client.get(&format!("/session/{session}/history")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let history = answer.json();
    assert_eq!(history["session_id"], session);
    let messages = history["messages"].as_array().expect("a list").iter();
    messages
        .map(|message| {
            let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
            (text("role"), text("content"))
        })
        .collect()
}

/// Returns the messages of an upstream's next request: each one's role and text.
pub(crate) async fn sent(upstream: &Upstream) -> Vec<(String, String)> {
    let request = upstream.next_request().await.json();
    let messages = request["messages"].as_array().expect("a list").iter();
    messages
        .map(|message| {
            let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
            (text("role"), text("content"))
        })
        .collect()
}

pub(crate) fn lines(lines: &[(&str, &str)]) -> Vec<(String, String)> {
    let line = |(role, text): &(&str, &str)| ((*role).to_owned(), (*text).to_owned());
    lines.iter().map(line).collect()
}

#[tokio::test]
async fn a_session_goes_on_where_it_was_and_is_gone_when_it_is_deleted() {
    on_each(async |builder, upstream| {
        let gateway = builder.start().await;
        let client = gateway.client();
        upstream.will(Reply::chat("first answer"));
        say(&client, "s 1", "first").await;
        assert_eq!(sent(&upstream).await, lines(&[("user", "first")]));

        // By another credential of the same user, and as a stream.
        upstream.will_stream(["second ", "answer"]);
        let mut streamed = question("s 1", "second");
        streamed["stream"] = json!(true);
        let answer = client.stream("/v1/chat/completions", &streamed).await;
        assert_eq!(answer.content().await, "second answer");
        let before = [
            ("user", "first"),
            ("assistant", "first answer"),
            ("user", "second"),
        ];
        assert_eq!(sent(&upstream).await, lines(&before));

        let all = [&before[..], &[("assistant", "second answer")]].concat();
        let answer = client.get("/session/s%201/history").await.json();
        let now = jiff::Timestamp::now();
        let time = |value: &Value| -> jiff::Timestamp {
            value.as_str().expect("a text").parse().expect("a time")
        };
        for message in answer["messages"].as_array().expect("a list") {
            let age = now.duration_since(time(&message["created_at"]));
            assert!((0..60).contains(&age.as_secs()), "{message}");
        }
        let left = time(&answer["expires_at"]).duration_since(now);
        assert!((3_500..=3_600).contains(&left.as_secs()), "{answer}");
        assert_eq!(answer["messages"][3]["content"], all[3].1);

        assert_eq!(client.delete("/session/s%201").await.status, 204);
        client
            .delete("/session/s%201")
            .await
            .error(404, "NOT_FOUND");
        let gone = client.get("/session/s%201/history").await;
        gone.error(404, "NOT_FOUND");
        upstream.will(Reply::chat("anew"));
        say(&client, "s 1", "third").await;
        assert_eq!(sent(&upstream).await, lines(&[("user", "third")]));
    })
    .await;
}

#[tokio::test]
async fn a_session_keeps_ten_messages_and_begins_with_a_question() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let client = gateway.client();
    upstream.always(Reply::chat("fine"));
    for turn in 1..=7 {
        say(&client, "s", &turn.to_string()).await;
    }
    let kept = history(&client, "s").await;
    assert_eq!(kept.len(), 10);
    assert_eq!(kept[0], ("user".to_owned(), "3".to_owned()));

    // A turn of three messages: after truncation the first message would be a tool's result without its call.
    let call =
        json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let mut turn = question("t", "");
    let with_tool = |text: &str| {
        json!([
            { "role": "user", "content": text },
            { "role": "assistant", "content": null, "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "c", "content": "result" },
        ])
    };
    for text in ["a", "b", "c"] {
        turn["messages"] = with_tool(text);
        assert_eq!(client.post("/chat", &turn).await.status, 200);
    }
    let kept = history(&client, "t").await;
    let roles: Vec<_> = kept.iter().map(|(role, _)| &**role).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"].repeat(2));
    assert_eq!(kept[0].1, "b");

    // The model's instruction is not repeated with each turn.
    for text in ["a", "b"] {
        turn["session_id"] = json!("u");
        turn["messages"] = json!([
            { "role": "system", "content": "be brief" },
            { "role": "user", "content": text },
        ]);
        assert_eq!(client.post("/chat", &turn).await.status, 200);
    }
    let roles: Vec<_> = history(&client, "u")
        .await
        .into_iter()
        .map(|(role, _)| role)
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
}

#[tokio::test]
async fn calls_reasoning_and_files_are_kept_for_the_next_turn() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let client = gateway.client();
    let call = json!({ "id": "call-1", "type": "function", "function": { "name": "f", "arguments": "{\"a\":1}" } });
    let message = json!({ "role": "assistant", "content": "let me see", "tool_calls": [call] });
    upstream.will(Reply::chat_message(&message, "tool_calls"));
    let image = "data:image/png;base64,iVBORw0KGgo=";
    let mut first = question("s", "");
    first["tools"] = json!([{ "type": "function", "function": { "name": "f" } }]);
    first["messages"] = json!([{ "role": "user", "content": [
        { "type": "text", "text": "what is this?" },
        { "type": "image_url", "image_url": { "url": image } },
    ] }]);
    assert_eq!(client.post("/chat", &first).await.status, 200);
    upstream.next_request().await;
    upstream.will(Reply::chat("a picture"));
    let mut second = question("s", "");
    second["messages"] = json!([{ "role": "tool", "tool_call_id": "call-1", "content": "a cat" }]);
    assert_eq!(client.post("/chat", &second).await.status, 200);
    let sent = upstream.next_request().await.json();
    assert_eq!(sent["messages"][0]["content"][1]["image_url"]["url"], image);
    assert_eq!(
        sent["messages"][1]["tool_calls"][0]["function"],
        call["function"]
    );
    assert_eq!(sent["messages"][2]["tool_call_id"], "call-1");
    let history = client.get("/session/s/history").await.json();
    let messages = &history["messages"];
    assert_eq!(messages[0]["content"][1]["image_url"]["url"], image);
    assert_eq!(messages[1]["tool_calls"], json!([call]));
    assert_eq!(messages[2]["tool_call_id"], "call-1");
    assert_eq!(messages[3]["content"], "a picture");
}

#[tokio::test]
async fn what_is_not_charged_is_not_said() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let client = gateway.client();
    upstream.will(Reply::error(400, "no"));
    let failed = client.post("/chat", &question("s", "x")).await;
    failed.error(400, "UPSTREAM_REJECTED");
    client
        .get("/session/s/history")
        .await
        .error(404, "NOT_FOUND");
    for id in [json!(""), json!(1), json!("a\nb"), json!("x".repeat(257))] {
        let mut question = question("s", "x");
        question["session_id"] = id;
        let refused = client.post("/chat", &question).await;
        assert_eq!(refused.error(400, "INVALID_REQUEST")["param"], "session_id");
    }
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn an_error_about_a_message_names_the_clients_own_behind_a_session() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let client = gateway.client();
    upstream.will(Reply::chat("hi"));
    say(&client, "s", "hello").await;
    for (theirs, own) in [
        ("messages[2].content[0]", "messages[0].content[0]"),
        ("messages[1].content", "session_id"),
        ("messages[9]", "messages[9]"),
        ("messages", "messages"),
    ] {
        let error = json!({ "error": { "message": "no", "param": theirs } });
        upstream.will(Reply::json(400, &error));
        let refused = client.post("/chat", &question("s", "and?")).await;
        let error = refused.error(400, "UPSTREAM_REJECTED");
        assert_eq!(error["param"], own, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_at_the_same_time_do_not_lose_one_another() {
    on_each(async |builder, upstream| {
        let gate = Gate::new();
        upstream.always(Reply::chat("fine").after_gate(&gate));
        let gateway = builder.start().await;
        for session in ["a", "b"] {
            let mut turns = JoinSet::new();
            for turn in 0..5 {
                let client = gateway.client();
                turns.spawn(async move { say(&client, session, &format!("{turn}")).await });
            }
            for _ in 0..5 {
                patiently(upstream.next_request()).await;
            }
            gate.open();
            while let Some(turn) = turns.join_next().await {
                turn.expect("no panic");
            }
            let kept = history(&gateway.client(), session).await;
            let mut asked: Vec<_> = kept
                .chunks(2)
                .map(|turn| {
                    assert_eq!((&*turn[0].0, &*turn[1].0), ("user", "assistant"));
                    turn[0].1.clone()
                })
                .collect();
            asked.sort();
            assert_eq!(asked, ["0", "1", "2", "3", "4"]);
        }
    })
    .await;
}

#[tokio::test]
async fn a_deleted_session_does_not_come_back_by_a_turn_that_was_under_way() {
    on_each(async |builder, upstream| {
        let gateway = builder.start().await;
        let client = gateway.client();
        upstream.will(Reply::chat("fine"));
        say(&client, "s", "first").await;
        upstream.next_request().await;
        let gate = Gate::new();
        upstream.will(Reply::chat("late").after_gate(&gate));
        let late = {
            let client = client.clone();
            tokio::spawn(async move { say(&client, "s", "second").await })
        };
        upstream.next_request().await;
        assert_eq!(client.delete("/session/s").await.status, 204);
        gate.open();
        late.await.expect("no panic");
        client
            .get("/session/s/history")
            .await
            .error(404, "NOT_FOUND");
    })
    .await;
}

#[tokio::test]
async fn a_session_ends_when_it_was_not_used_for_its_time() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("fine"));
    let clock = ManualClock::default();
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .clock(&clock)
        .tables("[sessions]\nttl_minutes = 10\n")
        .start()
        .await;
    let client = gateway.client();
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    say(&client, "s", "first").await;
    clock.advance(minutes(9));
    say(&client, "s", "second").await;
    clock.advance(minutes(9));
    assert_eq!(history(&client, "s").await.len(), 4);
    clock.advance(minutes(1));
    client
        .get("/session/s/history")
        .await
        .error(404, "NOT_FOUND");
    client.delete("/session/s").await.error(404, "NOT_FOUND");
    say(&client, "s", "third").await;
    assert_eq!(history(&client, "s").await.len(), 2);

    // The session expired during a turn, which still has its history.
    clock.advance(minutes(9));
    let gate = Gate::new();
    let before = upstream.count();
    upstream.will(Reply::chat("late").after_gate(&gate));
    let late = {
        let client = client.clone();
        tokio::spawn(async move { say(&client, "s", "fourth").await })
    };
    patiently(async {
        while upstream.count() == before {
            tokio::task::yield_now().await;
        }
    })
    .await;
    clock.advance(minutes(2));
    gate.open();
    late.await.expect("no panic");
    assert_eq!(history(&client, "s").await.len(), 4);
}

fn sealing_key(folder: &TempDir, id: u32, text: &str) -> String {
    let path = folder.path().join(text);
    std::fs::write(&path, text.repeat(16)).expect("it can be written");
    format!("{{ id = {id}, key = {{ file = {path:?} }} }},")
}

#[tokio::test]
async fn sessions_are_sealed_bound_to_their_place_and_outlive_a_new_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("a quiet answer"));
    let start = async |before: Option<Gateway>, keys: &str| {
        let builder = match before {
            Some(gateway) => Gateway::builder().folder(gateway.stop().await),
            None => Gateway::builder(),
        };
        let builder = builder.settings(&format!("sealing_keys = [{keys}]"));
        builder.upstream("scripted", &upstream).start().await
    };
    let (old, new) = (
        sealing_key(&folder, 1, "old"),
        sealing_key(&folder, 2, "new"),
    );
    let gateway = start(None, &old).await;
    say(&gateway.client(), "a", "a quiet question").await;
    let stored = sqlx::query("SELECT name, value FROM expiring_values")
        .fetch_all(gateway.app().database.reader())
        .await
        .expect("it can be read");
    assert_eq!(stored.len(), 1);
    let value: &[u8] = stored[0].get("value");
    for word in ["quiet", "user", "content"] {
        let found = value
            .windows(word.len())
            .any(|part| part == word.as_bytes());
        assert!(!found, "{word}");
    }

    let gateway = start(Some(gateway), &format!("{new}{old}")).await;
    let client = gateway.client();
    assert_eq!(history(&client, "a").await.len(), 2);
    say(&client, "a", "more").await;
    say(&client, "b", "another").await;
    let gateway = start(Some(gateway), &new).await;
    let client = gateway.client();
    assert_eq!(history(&client, "a").await.len(), 4);

    // Neither in the place of another session, nor with another expiry.
    let write = async |statement: &'static str| {
        let written = sqlx::query(statement).execute(gateway.app().database.writer());
        assert_eq!(written.await.expect("it can be written").rows_affected(), 1);
    };
    write(
        "UPDATE expiring_values SET value = (SELECT value FROM expiring_values WHERE name LIKE '%:a') \
         WHERE name LIKE '%:b'",
    )
    .await;
    client
        .get("/session/b/history")
        .await
        .error(404, "NOT_FOUND");
    // Its place is free.
    say(&client, "b", "anew").await;
    assert_eq!(history(&client, "b").await.len(), 2);
    write(
        "UPDATE expiring_values SET value = CAST(x'00000fffffffffff' || substr(value, 9) AS BLOB) \
         WHERE name LIKE '%:a'",
    )
    .await;
    client
        .get("/session/a/history")
        .await
        .error(404, "NOT_FOUND");
}

/// Returns the words with the prefix `canary-` in the files below a folder.
fn canaries<'a>(folder: &Path, words: &[&'a str]) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        // The compiled plugins of all tests.
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            found.append(&mut canaries(&path, words));
        }
        // A file may have been removed meanwhile.
        let file = std::fs::read(&path).unwrap_or_default();
        found.extend(words.iter().filter(|word| tests::contains(&file, word)));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_said_is_in_no_file_of_a_store() {
    let (asked, answered) = ("canary-question-5eL2", "canary-answer-9pQ7");
    // Proof that the search finds words.
    let session = "canary-session-3kW4";
    let words = [asked, answered, session];
    let (postgres, redis) = (Postgres::start(Durability::Fast), Redis::start());
    let database = postgres.create_database().await;
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat(answered));
    for (builder, expected) in [
        (Gateway::builder(), BTreeSet::from([session])),
        (Gateway::builder().postgres(&database), BTreeSet::new()),
        (Gateway::builder().redis(&redis.url()), BTreeSet::new()),
    ] {
        let gateway = builder.upstream("scripted", &upstream).start().await;
        let client = gateway.client();
        let with_key = client.clone().with_header("idempotency-key", "canary-key");
        say(&with_key, session, asked).await;
        assert_eq!(history(&client, session).await.len(), 2);
        // A stop empties SQLite's log.
        let running = canaries(&gateway.data_dir(), &words);
        let folder = gateway.stop().await;
        for found in [running, canaries(folder.path(), &words)] {
            assert_eq!(found, expected, "{folder:?}");
        }
    }
    for command in ["CONFIG SET rdbcompression no", "SAVE"] {
        assert!(redis.command(command).ends_with("+OK\r\n"), "{command}");
    }
    let mut connection = sqlx::AnyConnection::connect(database.expose())
        .await
        .expect("it answers");
    let checkpoint = connection.execute("CHECKPOINT").await;
    checkpoint.expect("what is in memory is in files");
    for folder in [postgres.folder(), redis.folder()] {
        assert_eq!(
            canaries(folder, &words),
            BTreeSet::from([session]),
            "{folder:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_sessions_and_without_their_store_nothing_is_asked() {
    let (postgres, redis) = (Postgres::shared().create_database().await, Redis::start());
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("fine"));
    let node = || {
        Gateway::builder()
            .postgres(&postgres)
            .redis(&redis.url())
            .upstream("scripted", &upstream)
    };
    let first = node().start().await;
    let second = node().sharing_secrets_of(&first).start().await;
    let client = first.client();
    say(&client, "s", "first").await;
    let elsewhere = client.at(second.address());
    say(&elsewhere, "s", "second").await;
    assert_eq!(history(&client, "s").await.len(), 4);
    redis.kill();
    let refused = client.post("/chat", &question("s", "third")).await;
    refused.error(503, "CACHE_UNAVAILABLE");
    assert_eq!(upstream.count(), 2);
}
