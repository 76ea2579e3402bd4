//! Requests for vectors, and the checks of vectors.

use serde_json::{Value, json};
use weir_dialects::other::PlainWriter;
use weir_dialects::{AnswerHead, BilledUsage, DataFault};
use weir_errors::ApiError;
use weir_sandbox::adapter::bindings::embeddings::Input;

use super::request::parse;
use super::{EmbeddingForm, EmbeddingList};
use crate::schema_tests::{checked, data};

fn asked(fields: &Value) -> Result<Vec<Input>, ApiError> {
    let mut body = json!({ "model": "m", "input": "x" });
    for (name, value) in fields.as_object().expect("an object") {
        body[name] = value.clone();
    }
    let (request, _) = parse(body.to_string().as_bytes())?;
    Ok(request.task.inputs)
}

#[test]
fn an_input_is_a_text_tokens_or_a_list_of_either() {
    let text = |text: &str| Input::Text(text.into());
    for (input, expected) in [
        (json!("a"), vec![text("a")]),
        (json!(["a", "b"]), vec![text("a"), text("b")]),
        (json!([1, 2]), vec![Input::Tokens(vec![1, 2])]),
        (
            json!([[1, 2], [3]]),
            vec![Input::Tokens(vec![1, 2]), Input::Tokens(vec![3])],
        ),
    ] {
        assert_eq!(asked(&json!({ "input": input })), Ok(expected));
    }
}

#[test]
fn a_wrong_field_is_named() {
    let long: Vec<_> = (0..2_049).map(|_| "x").collect();
    for (fields, param) in [
        (json!({ "input": [] }), "input"),
        (json!({ "input": "" }), "input"),
        (json!({ "input": [""] }), "input"),
        (json!({ "input": ["a", ""] }), "input[1]"),
        (json!({ "input": [[1], []] }), "input[1]"),
        (json!({ "input": ["a", 1] }), "input"),
        (json!({ "input": [1, "a"] }), "input[1]"),
        (json!({ "input": [-1] }), "input[0]"),
        (json!({ "input": 5 }), "input"),
        (json!({ "input": long }), "input"),
        (json!({ "input": null }), "input"),
        (json!({ "model": "" }), "model"),
        (json!({ "dimensions": 0 }), "dimensions"),
        (json!({ "dimensions": 65_537 }), "dimensions"),
        (json!({ "encoding_format": "hex" }), "encoding_format"),
        (json!({ "input_type": "" }), "input_type"),
        (json!({ "Dimensions": 5 }), "Dimensions"),
    ] {
        let error = asked(&fields).expect_err("it is wrong");
        assert_eq!(error.param(), Some(param), "{fields}");
    }
}

fn vectors(form: EmbeddingForm, vectors: &[&str]) -> Result<Value, DataFault> {
    let head = AnswerHead {
        id: "1".into(),
        created: 1,
        model: "m".into(),
    };
    let mut list = EmbeddingList::new(head, form);
    for vector in vectors {
        list.push(&data(vector));
    }
    list.check()?;
    let body = Box::new(list).into_body(&BilledUsage::default());
    let body = checked("EmbeddingList", &body);
    let data = body["data"].as_array().expect("a list");
    for (index, item) in data.iter().enumerate() {
        assert_eq!(item["index"], json!(index));
    }
    Ok(data.iter().map(|item| item["embedding"].clone()).collect())
}

/// `[1.5, -2]` as numbers of 32 bits in little-endian order.
const BASE64: &str = "\"AADAPwAAAMA=\"";

#[test]
fn vectors_reach_the_client_in_its_encoding() {
    let form = |base64| EmbeddingForm {
        base64,
        inputs: 2,
        dimensions: None,
    };
    let both = ["[1.5, -2]", BASE64];
    assert_eq!(
        vectors(form(false), &both),
        Ok(json!([[1.5, -2], [1.5, -2.0]]))
    );
    let text: Value = serde_json::from_str(BASE64).expect("JSON");
    assert_eq!(vectors(form(true), &both), Ok(json!([text, text])));
}

#[test]
fn an_invalid_vector_is_never_delivered() {
    for base64 in [false, true] {
        let form = EmbeddingForm {
            base64,
            inputs: 1,
            dimensions: Some(2),
        };
        assert!(vectors(form, &["[1, 2]"]).is_ok());
        let not_finite = "\"AADAfwAAAMA=\"";
        for wrong in [
            "[]",
            "[1]",
            "[1, 2, 3]",
            "[1, null]",
            "[1, \"2\"]",
            "{}",
            "null",
            "1",
            "[1, 1e99]",
            "\"\"",
            "\"AADAPw==\"",
            "\"AADAPwA=\"",
            "\"?\"",
            not_finite,
            "[1, 2",
            "",
        ] {
            assert!(vectors(form, &[wrong]).is_err(), "{wrong}");
        }
        assert_eq!(
            vectors(form, &[]),
            Err(DataFault::Invalid("fewer vectors than inputs"))
        );
        // One input has one vector.
        assert_eq!(
            vectors(form, &["[1, 2]", "[3]"]),
            vectors(form, &["[1, 2]"])
        );
        assert_eq!(vectors(form, &["[1]"]), Err(DataFault::Dimensions));
        let form = EmbeddingForm {
            inputs: 2,
            dimensions: None,
            ..form
        };
        assert!(vectors(form, &["[1, 2]", "[1]"]).is_err());
    }
}
