//! Requests for verdicts, and responses with them.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use serde_json::{Value, json};
use weir_dialects::other::PlainWriter;
use weir_dialects::{AnswerHead, BilledUsage, DataFault};
use weir_ledger::{Credits, Quantity, TokenCounts};

use super::Verdicts;
use super::request::parse;
use crate::schema_tests::{checked, data};

fn asked(fields: &Value) -> Result<(String, Vec<String>), Option<String>> {
    let parsed = parse(fields.to_string().as_bytes());
    let (request, _) = parsed.map_err(|error| error.param().map(str::to_owned))?;
    Ok((request.task.model, request.task.inputs))
}

#[test]
fn a_request_has_one_text_or_a_list_of_them() {
    let one = asked(&json!({"input": "a"})).unwrap();
    // The default of OpenAI's API (openai 3.52, `types/moderation_create_params.py`).
    assert_eq!(
        one,
        ("omni-moderation-latest".to_owned(), vec!["a".to_owned()])
    );
    let two = asked(&json!({"model": "m", "input": ["a", "b"]})).unwrap();
    assert_eq!(two.1, ["a", "b"]);
    for (fields, param) in [
        (json!({}), "input"),
        (json!({"input": ""}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": ["a", ""]}), "input[1]"),
        (json!({"input": 1}), "input"),
        (json!({"input": "a", "model": ""}), "model"),
    ] {
        assert_eq!(asked(&fields), Err(Some(param.to_owned())), "{fields}");
    }
}

fn verdicts(inputs: usize, events: &[&str]) -> Verdicts {
    let head = AnswerHead {
        id: "0".repeat(32),
        created: 0,
        model: "m".to_owned(),
    };
    let mut verdicts = Verdicts::new(head, inputs);
    for json in events {
        verdicts.push(&data(json));
    }
    verdicts
}

#[test]
fn verdicts_pass_on_as_they_are() {
    let harmful =
        r#"{"flagged":true,"categories":{"violence":true},"category_scores":{"violence":0.9}}"#;
    let verdicts = verdicts(2, &[harmful, r#"{"flagged":false}"#]);
    assert_eq!(verdicts.check(), Ok(()));
    let billed = BilledUsage {
        tokens: TokenCounts {
            input: 3,
            ..TokenCounts::default()
        },
        quantity: Quantity::default(),
        credits: Credits::from_micro(1_000_000),
    };
    let body = checked("ModerationAnswer", &Box::new(verdicts).into_body(&billed));
    let harmful: Value = serde_json::from_str(harmful).unwrap();
    assert_eq!(body["results"], json!([harmful, {"flagged": false}]));
    assert_eq!(body["model"], "m");
    assert_eq!(body["usage"], json!({"input_tokens": 3, "credits": 1}));
}

#[test]
fn a_response_has_a_verdict_for_each_input() {
    let fine = r#"{"flagged":false}"#;
    for (inputs, events) in [
        (2, &[fine][..]),
        (1, &[r#"{"categories":{}}"#]),
        (1, &["[]"]),
        (1, &["no"]),
    ] {
        let checked = verdicts(inputs, events).check();
        assert!(matches!(checked, Err(DataFault::Invalid(_))), "{events:?}");
    }
    let surplus = verdicts(1, &[fine, "no"]);
    assert_eq!((surplus.check(), surplus.has_surplus()), (Ok(()), true));
    assert!(!verdicts(1, &[fine]).has_surplus());
}
