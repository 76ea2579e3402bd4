//! Requests for an order of documents, and the checks of rankings.

use serde_json::{Value, json};
use weir_dialects::other::PlainWriter;
use weir_dialects::{AnswerHead, BilledUsage, DataFault};
use weir_sandbox::adapter::bindings::rerank::RerankRequest;

use super::request::parse;
use super::{Ranking, RankingForm};
use crate::schema_tests::{checked, data};

fn asked(fields: &Value) -> Result<(RerankRequest, RankingForm), Option<String>> {
    let mut body = json!({ "model": "m", "query": "q", "documents": ["a", { "text": "b" }] });
    for (name, value) in fields.as_object().expect("an object") {
        body[name] = value.clone();
    }
    let parsed = parse(body.to_string().as_bytes());
    let (request, form) = parsed.map_err(|error| error.param().map(str::to_owned))?;
    Ok((request.task, form))
}

#[test]
fn documents_are_texts_or_objects_with_a_text() {
    let (task, form) = asked(&json!({})).expect("it is right");
    assert_eq!(task.documents, ["a", "b"]);
    assert_eq!((form.documents, form.results, form.texts), (2, 2, None));
    let (_, form) = asked(&json!({ "top_n": 1, "return_documents": true })).expect("it is right");
    assert_eq!(form.results, 1);
    assert_eq!(
        form.texts.as_deref(),
        Some(&["a".to_owned(), "b".to_owned()][..])
    );
}

#[test]
fn a_wrong_field_is_named() {
    for (fields, param) in [
        (json!({ "query": "" }), "query"),
        (json!({ "query": null }), "query"),
        (json!({ "documents": [] }), "documents"),
        (json!({ "documents": "a" }), "documents"),
        (json!({ "documents": ["a", ""] }), "documents[1]"),
        (json!({ "documents": [{}] }), "documents[0]"),
        (
            json!({ "documents": [{ "text": "a", "image": 1 }] }),
            "documents[0].image",
        ),
        (json!({ "top_n": 0 }), "top_n"),
    ] {
        assert_eq!(
            asked(&fields).err(),
            Some(Some(param.to_owned())),
            "{fields}"
        );
    }
}

fn ranked(form: RankingForm, rankings: &[Value]) -> Result<Value, DataFault> {
    let head = AnswerHead {
        id: "1".into(),
        created: 1,
        model: "m".into(),
    };
    let mut answer = Ranking::new(head, form);
    for ranking in rankings {
        answer.push(&data(&ranking.to_string()));
    }
    answer.check()?;
    let body = Box::new(answer).into_body(&BilledUsage::default());
    Ok(checked("RankingAnswer", &body))
}

#[test]
fn a_ranking_names_each_document_at_most_once() {
    let (_, form) = asked(&json!({ "return_documents": true })).expect("it is right");
    let item = |index: u64, score: f64| json!({ "index": index, "relevance_score": score });
    let body = ranked(form.clone(), &[json!([item(1, 0.5), item(0, 0.25)])]).expect("it is right");
    assert_eq!(
        body["results"],
        json!([
            { "index": 1, "relevance_score": 0.5, "document": { "text": "b" } },
            { "index": 0, "relevance_score": 0.25, "document": { "text": "a" } },
        ])
    );
    for wrong in [
        vec![],
        vec![json!([item(0, 1.0), item(0, 0.5)])],
        vec![json!([item(2, 1.0)])],
        vec![json!([{ "index": 0 }])],
        vec![json!([{ "index": -1, "relevance_score": 1 }])],
        vec![json!({})],
        vec![json!([item(0, 1.0)]), json!([item(1, 1.0)])],
    ] {
        assert!(ranked(form.clone(), &wrong).is_err(), "{wrong:?}");
    }
    let form = RankingForm { results: 1, ..form };
    let both = json!([item(0, 1.0), item(1, 0.5)]);
    let body = ranked(form, &[both]).expect("the first document");
    assert_eq!(body["results"].as_array().map(Vec::len), Some(1));
    assert_eq!(body["results"][0]["index"], 0);
}
