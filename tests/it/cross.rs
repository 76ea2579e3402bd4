//! Each client dialect with each adapter: a client gets the same response from every adapter.

use serde_json::{Value, json};
use tests::scenario::{Scenario, USED, apis, gateway_with};
use tests::speaker::{End, Speaker, Told};
use tests::{Gateway, Upstream};

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
            let code = error["weir_code"].as_str().expect("a code");
            assert!(
                ["UPSTREAM_ERROR", "UPSTREAM_UNAVAILABLE"].contains(&code),
                "{adapter} to {speaker:?}: {error}"
            );
        }
    }
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
