//! The processes beside weir: the upstream and the proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpListener;

const CHUNKS: usize = 100;

/// Plays the role in the arguments of this program, `--role upstream` or `--role proxy`, until it is killed. Returns if they
/// name none.
pub(crate) fn play_role(arguments: &[String]) {
    match super::option(arguments, "--role") {
        Some("upstream") => super::runtime().block_on(upstream()),
        Some("proxy") => {
            let to = arguments.last().unwrap().parse().unwrap();
            super::runtime().block_on(proxy(to));
        }
        Some(other) => panic!("there is no role {other}"),
        None => {}
    }
}

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// Serves connections on a free port, which it prints, until it is killed.
async fn serve<F>(answer: impl Fn(Request<Incoming>) -> F + Clone + 'static) -> !
where
    F: Future<Output = Result<Response<Body>, hyper::Error>> + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                connection.set_nodelay(true).unwrap();
                let answer = answer.clone();
                tokio::task::spawn_local(async move {
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(connection), service_fn(answer))
                        .await;
                });
            }
        })
        .await
}

/// Responds by the path: `/plain`, `/burst`, `/paced`, or `/held`, which never ends.
async fn upstream() -> ! {
    let usage = json!({ "prompt_tokens": 300, "completion_tokens": 100, "total_tokens": 400 });
    let plain = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "m", "choices": [{
            "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": "word ".repeat(100) },
        }], "usage": usage,
    });
    let plain = Bytes::from(plain.to_string());
    let mut pieces: Vec<Bytes> = (0..CHUNKS)
        .map(|number| {
            let delta = match number {
                0 => json!({ "role": "assistant", "content": "word " }),
                _ => json!({ "content": "word " }),
            };
            event(
                &json!([{ "index": 0, "delta": delta, "finish_reason": null }]),
                &Value::Null,
            )
        })
        .collect();
    let mut end = event(
        &json!([{ "index": 0, "delta": {}, "finish_reason": "stop" }]),
        &Value::Null,
    )
    .to_vec();
    end.extend_from_slice(&event(&json!([]), &usage));
    end.extend_from_slice(b"data: [DONE]\n\n");
    pieces.push(end.into());
    let pieces = Arc::new(pieces);
    serve(move |request: Request<Incoming>| {
        let (plain, pieces) = (plain.clone(), pieces.clone());
        async move {
            let path = request.uri().path().to_owned();
            request.into_body().collect().await?;
            if path.starts_with("/plain") {
                let mut response = Response::new(full(plain));
                response.headers_mut().insert(
                    header::CONTENT_TYPE,
                    HeaderValue::from_static("application/json"),
                );
                return Ok(response);
            }
            let is_paced = path.starts_with("/paced");
            let is_held = path.starts_with("/held");
            let stream = futures_util::stream::unfold(0, move |number| {
                let pieces = pieces.clone();
                async move {
                    let piece = pieces.get(number)?.clone();
                    if is_paced && number > 0 {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                    if is_held && number > 0 {
                        std::future::pending().await
                    }
                    Some((Ok(Frame::data(piece)), number + 1))
                }
            });
            let mut response = Response::new(StreamBody::new(stream).boxed_unsync());
            response.headers_mut().insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("text/event-stream"),
            );
            Ok(response)
        }
    })
    .await
}

fn event(choices: &Value, usage: &Value) -> Bytes {
    let chunk = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m",
        "choices": choices, "usage": usage,
    });
    Bytes::from(format!("data: {chunk}\n\n"))
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// Forwards all requests to the upstream, and its responses back, unparsed.
async fn proxy(to: SocketAddr) -> ! {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build::<_, Incoming>(connector);
    serve(move |mut request: Request<Incoming>| {
        let client = client.clone();
        let path = request.uri().path_and_query().unwrap().as_str();
        *request.uri_mut() = Uri::builder()
            .scheme("http")
            .authority(to.to_string())
            .path_and_query(path)
            .build()
            .unwrap();
        async move {
            let answer = client.request(request).await.expect("the upstream answers");
            Ok(answer.map(|body| body.boxed_unsync()))
        }
    })
    .await
}
