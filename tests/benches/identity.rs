//! The cost of identifying a caller whose key is in the in-process cache, and of sealing and opening a session.
//!
//! Processor time of the single thread, as in the bench of the sandbox.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod measure;

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use axum::extract::FromRequestParts;
use http::{HeaderMap, Request};
use measure::{median, processor_time};
use tests::Gateway;
use weir_identity::Caller;
use weir_identity::client_address::ClientAddress;
use weir_storage::sealing::{KeyRing, Purpose};
use weir_storage::secrets::SecretKey;

const BATCHES: usize = 9;
const REQUESTS: u32 = 20_000;

/// Limit for the headers, the key's check and hash, the lockout, both rates and the record.
const LIMIT: Duration = Duration::from_micros(10);

/// Bytes of the session that is sealed and opened.
const SESSION_BYTES: usize = 4 << 10;
const SESSION_LIMIT: Duration = Duration::from_micros(25);

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    let took = runtime.block_on(identify());
    println!("a caller known from the cache in process: {took:.2?} (limit {LIMIT:.0?})");
    let sealed = seal_and_open();
    println!(
        "a session of {SESSION_BYTES} bytes sealed and opened: {sealed:.2?} (limit {SESSION_LIMIT:.0?})"
    );
    if took <= LIMIT && sealed <= SESSION_LIMIT {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn seal_and_open() -> Duration {
    let keys = KeyRing::of([(1, SecretKey::new([7; 32]))]);
    let (session, fields) = (vec![b'x'; SESSION_BYTES], [&b"alice"[..], b"session"]);
    let mut took = Vec::new();
    for _ in 0..BATCHES {
        let started = processor_time();
        for _ in 0..REQUESTS {
            let sealed = keys.seal(Purpose::SESSION, &fields, black_box(&session));
            let opened = keys.unseal(Purpose::SESSION, &fields, &sealed);
            black_box(opened.expect("it was sealed so"));
        }
        took.push((processor_time() - started) / REQUESTS);
    }
    median(took)
}

async fn identify() -> Duration {
    let limits = "[rate_limits]\nfree = 1000000000\naddress = 1000000000\n";
    let gateway = Gateway::builder().tables(limits).start().await;
    let request =
        Request::get("/models").header("authorization", format!("Bearer {}", gateway.key()));
    let (mut parts, ()) = request.body(()).expect("a request").into_parts();
    let address = ClientAddress::of([203, 0, 113, 7].into(), &HeaderMap::new(), &[]);
    parts.extensions.insert(address);
    let mut took = Vec::new();
    for _ in 0..BATCHES {
        let started = processor_time();
        for _ in 0..REQUESTS {
            let caller = Caller::from_request_parts(&mut parts, gateway.app()).await;
            black_box(caller.expect("a known key"));
        }
        took.push((processor_time() - started) / REQUESTS);
    }
    median(took)
}
