//! Each client dialect with each adapter: a client gets the same response from every adapter. The table of responses in
//! `host/docs/dialects.md` lists the exchanges that pass.

use serde_json::{Value, json};
use tests::scenario::{CACHED, SOURCE, Scenario, USED, apis, gateway_with};
use tests::speaker::{End, Speaker, Told};
use tests::{Gateway, Upstream};

use crate::dialects::{assert_documented, table_head};

/// Rows of the table of responses.
const ROWS: [(&str, Scenario); 9] = [
    ("text", Scenario::Text),
    ("parallel tool calls", Scenario::ParallelTools),
    ("reasoning", Scenario::Reasoning),
    ("citations", Scenario::Cited),
    ("refusal", Scenario::Refusal),
    ("end at the token limit", Scenario::Length),
    ("structured output", Scenario::Structured),
    ("usage with cached tokens", Scenario::Cached),
    ("error inside a stream", Scenario::ErrorInside),
];

/// The response that every client gets, from every adapter.
fn expected(scenario: Scenario) -> Told {
    let told = |text: &str, end: End| Told {
        text: text.to_owned(),
        end,
        used: USED,
        ..Told::default()
    };
    let look = |arguments: Value| ("look".to_owned(), arguments);
    match scenario {
        Scenario::Text => told("Hello there", End::Stop),
        Scenario::Tool => Told {
            calls: vec![look(json!({ "at": 1 }))],
            ..told("", End::Tools)
        },
        Scenario::ParallelTools => Told {
            calls: vec![look(json!({ "at": 1 })), look(json!({}))],
            ..told("Two", End::Tools)
        },
        Scenario::Reasoning => Told {
            reasoning: "Hm.".to_owned(),
            ..told("So", End::Stop)
        },
        Scenario::Refusal => told("", End::Declined),
        Scenario::Length => told("So", End::Length),
        Scenario::Structured => told("{\"answer\": 42}", End::Stop),
        Scenario::Cited => Told {
            citations: vec![SOURCE.to_owned()],
            ..told("So", End::Stop)
        },
        Scenario::Cached => Told {
            cached: CACHED,
            ..told("So", End::Stop)
        },
        Scenario::ErrorInside => unreachable!("it is no answer"),
    }
}

/// Some dialects put the words of a refusal into the text.
fn without_words_of_refusal(mut told: Told) -> Told {
    if told.end == End::Declined {
        told.text.clear();
    }
    told
}

#[tokio::test]
async fn the_same_exchange_is_told_the_same_in_each_dialect_by_each_adapter() {
    for adapter in &apis() {
        let upstream = Upstream::start().await;
        let gateway = gateway_with(adapter, &upstream).await;
        let client = gateway.client();
        for speaker in Speaker::ALL {
            for scenario in Scenario::WHOLE {
                for stream in [false, true] {
                    let Some(reply) = scenario.reply(adapter, stream) else {
                        continue;
                    };
                    upstream.will(reply);
                    let told = match stream {
                        false => speaker.ask(&client, "scripted").await,
                        true => speaker
                            .ask_streamed(&client, "scripted")
                            .await
                            .expect("an answer"),
                    };
                    assert_eq!(
                        without_words_of_refusal(told),
                        expected(scenario),
                        "{adapter} to {speaker:?}, {scenario:?}, streamed: {stream}"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn an_error_inside_a_stream_is_told_as_one_in_each_dialect_by_each_adapter() {
    for adapter in &apis() {
        let upstream = Upstream::start().await;
        let gateway = gateway_with(adapter, &upstream).await;
        for speaker in Speaker::ALL {
            upstream.will(
                Scenario::ErrorInside
                    .reply(adapter, true)
                    .expect("an answer"),
            );
            let told = speaker.ask_streamed(&gateway.client(), "scripted").await;
            let error = told.expect_err("it is not whole");
            let code = speaker.code(&error);
            assert!(
                ["UPSTREAM_ERROR", "UPSTREAM_UNAVAILABLE"].contains(&code),
                "{adapter} to {speaker:?}: {error}"
            );
        }
    }
}

/// The two tests above check each of these exchanges in all dialects.
#[test]
fn the_reference_says_what_the_responses_of_each_adapter_carry() {
    let mut table = table_head();
    for (name, scenario) in ROWS {
        table += &format!("| {name} |");
        for api in apis() {
            let [plain, streamed] = [false, true].map(|stream| scenario.reply(&api, stream));
            table += match (plain.is_some(), streamed.is_some()) {
                (true, true) => " yes |",
                (false, true) => " streamed |",
                _ => " – |",
            };
        }
        table += "\n";
    }
    assert_documented(&table);
}

/// The demo calls no provider, so the test compares dialects alone.
#[tokio::test]
async fn the_demo_says_the_same_in_each_dialect() {
    let gateway = Gateway::start().await;
    let client = gateway.client();
    let first = Speaker::Chat.ask(&client, "demo").await;
    assert_eq!(first.end, End::Stop);
    assert!(!first.text.is_empty());
    for speaker in Speaker::ALL {
        let told = speaker.ask(&client, "demo").await;
        assert_eq!(told.text, first.text, "{speaker:?}");
        assert_eq!(told.used, first.used, "{speaker:?}");
        let streamed = speaker.ask_streamed(&client, "demo").await;
        assert_eq!(streamed, Ok(told), "{speaker:?}");
    }
}
