//! Uploading a component to a gateway.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use reqwest::Body;
use serde::de::DeserializeOwned;
use weir_author::transfer::{CountedBody, TransferWords, with_progress};
use weir_inference::plugins::routes::SIGNATURE_HEADER;
use weir_plugins::signature::Signature;

use crate::cli::connection::{AdminConnection, GatewayAnswer};

/// Puts a component at a path of a gateway, and shows the progress.
pub(super) async fn upload<T: DeserializeOwned>(
    connection: &AdminConnection,
    path: &str,
    component: Bytes,
    signature: Option<&Signature>,
) -> anyhow::Result<GatewayAnswer<T>> {
    let total = component.len();
    let sent = Arc::default();
    let body = CountedBody::new(component, Arc::clone(&sent));
    let body = Some(("application/wasm", Body::wrap(body)));
    let mut headers = HeaderMap::new();
    if let Some(signature) = signature {
        headers.insert(SIGNATURE_HEADER, signature.to_json().try_into()?);
    }
    let response = connection.send_with(Method::PUT, path, headers, body);
    let words = TransferWords {
        moving: "Uploading",
        after: "Compiling and checking",
    };
    with_progress(response, &sent, total, words).await?.parse()
}
