//! AWS's credentials, and its signature of a request: Signature Version 4.
//!
//! Source: "Create a signed AWS API request" in the IAM User Guide. The path is encoded twice, but not for S3, which also wants the
//! body's digest in a header.

use std::fmt::Write as _;
use std::time::SystemTime;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Request};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use weir_storage::ids::Hex;
use weir_storage::secrets::Secret;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const SESSION_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// The name of S3 for signatures.
pub const S3: &str = "s3";

/// The signed headers, if a request has them, in the order of their names.
const SIGNED: [HeaderName; 6] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    header::HOST,
    CONTENT_DIGEST,
    DATE,
    SESSION_TOKEN,
];

/// Keys that sign requests.
#[derive(Debug)]
pub struct AwsKeys {
    /// The public id of the secret.
    pub access_key_id: String,
    /// The secret, which no request contains.
    pub secret_access_key: Secret,
    /// The token of temporary keys, which each request contains.
    pub session_token: Option<Secret>,
}

/// The region and the service for which a request is signed.
#[derive(Debug, Clone)]
pub struct AwsScope {
    /// The region, e.g. `us-east-1`.
    pub region: String,
    /// The service's name for signatures, e.g. `bedrock`.
    pub service: String,
}

/// Adds the signature's headers to a complete request.
pub fn sign(request: &mut Request<Bytes>, keys: &AwsKeys, scope: &AwsScope, at: SystemTime) {
    let at = Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH);
    let time = at.strftime("%Y%m%dT%H%M%SZ").to_string();
    let date = &time[..8];
    let host = request
        .uri()
        .authority()
        .map(|authority| authority.as_str());
    let host = host.unwrap_or_default().to_owned();
    insert(request.headers_mut(), header::HOST, &host);
    insert(request.headers_mut(), DATE, &time);
    let body = Hex(&Sha256::digest(request.body())).to_string();
    let is_s3 = scope.service == S3;
    if is_s3 {
        insert(request.headers_mut(), CONTENT_DIGEST, &body);
    }
    if let Some(token) = &keys.session_token {
        insert(request.headers_mut(), SESSION_TOKEN, token.expose());
    }
    let (canonical, signed) = canonical_request(request, &body, is_s3);
    let AwsScope { region, service } = scope;
    let scope = format!("{date}/{region}/{service}/aws4_request");
    let text = format!(
        "{ALGORITHM}\n{time}\n{scope}\n{}",
        Hex(&Sha256::digest(canonical))
    );
    let secret = format!("AWS4{}", keys.secret_access_key.expose());
    let parts = [date, region, service, "aws4_request", &text];
    let signature = parts
        .into_iter()
        .fold(secret.into_bytes(), |key, part| mac(&key, part));
    let id = &keys.access_key_id;
    let authorization = format!(
        "{ALGORITHM} Credential={id}/{scope}, SignedHeaders={signed}, Signature={}",
        Hex(&signature)
    );
    insert(request.headers_mut(), header::AUTHORIZATION, &authorization);
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // The keys are valid header values: `mint` checks them.
    if let Ok(mut value) = HeaderValue::from_str(value) {
        value.set_sensitive(name == header::AUTHORIZATION || name == SESSION_TOKEN);
        headers.insert(name, value);
    }
}

/// Returns the canonical form of a request, and the names of its signed headers.
fn canonical_request(request: &Request<Bytes>, body: &str, is_s3: bool) -> (String, String) {
    let uri = request.uri();
    let mut canonical = format!("{}\n", request.method());
    match is_s3 {
        true => canonical.push_str(uri.path()),
        false => encode_path(uri.path(), &mut canonical),
    }
    let mut query: Vec<_> = uri.query().unwrap_or_default().split('&').collect();
    query.sort_unstable();
    let _ = write!(canonical, "\n{}\n", query.join("&"));
    let mut signed = String::new();
    for name in SIGNED {
        let mut values = request.headers().get_all(&name).iter().peekable();
        if values.peek().is_none() {
            continue;
        }
        let folded = values.map(|value| {
            let words = value.to_str().unwrap_or_default().split_ascii_whitespace();
            words.collect::<Vec<_>>().join(" ")
        });
        let folded = folded.collect::<Vec<_>>().join(",");
        let _ = writeln!(canonical, "{name}:{folded}");
        if !signed.is_empty() {
            signed.push(';');
        }
        signed.push_str(name.as_str());
    }
    let _ = write!(canonical, "\n{signed}\n{body}");
    (canonical, signed)
}

/// Percent-encodes a path that is encoded already.
fn encode_path(path: &str, into: &mut String) {
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                into.push(byte.into());
            }
            _ => {
                let _ = write!(into, "%{byte:02X}");
            }
        }
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key)
        .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys of AWS's examples.
    fn keys(session_token: Option<&str>) -> AwsKeys {
        AwsKeys {
            access_key_id: "AKIDEXAMPLE".into(),
            secret_access_key: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into()),
            session_token: session_token.map(|token| Secret::new(token.into())),
        }
    }

    /// Signatures of botocore 1.44.5 (`botocore.auth.SigV4Auth`) for the same request.
    #[test]
    fn signatures_equal_botocores() {
        let at: Timestamp = "2026-11-24T12:00:00Z".parse().expect("a time");
        for (session_token, names, signature) in [
            (
                None,
                "accept;content-type;host;x-amz-date",
                "717636123e5cebcff433a8dc4128cc34b4b28a1f6d20492b5e8aff1f7a27c20d",
            ),
            (
                Some("SESSIONTOKEN"),
                "accept;content-type;host;x-amz-date;x-amz-security-token",
                "77c9f68883b18faefb895f7f7d7574da23f1df7ed63fd1e44b28427607ddb846",
            ),
        ] {
            let mut request = Request::post(
                "https://bedrock-runtime.us-east-1.amazonaws.com/model/\
                 us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream",
            )
            .header("content-type", "application/json")
            .header("accept", "application/vnd.amazon.eventstream")
            .header("user-agent", "weir")
            .body(Bytes::from_static(b"{\"messages\":[]}"))
            .expect("a request");
            let keys = keys(session_token);
            let scope = AwsScope {
                region: "us-east-1".into(),
                service: "bedrock".into(),
            };
            sign(&mut request, &keys, &scope, at.into());
            assert_eq!(
                request.headers()[header::AUTHORIZATION],
                format!(
                    "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261124/us-east-1/bedrock/aws4_request, \
                     SignedHeaders={names}, Signature={signature}"
                )
            );
        }
    }

    /// Signatures of botocore 1.44.8 (`botocore.auth.S3SigV4Auth`) for the same request.
    #[test]
    fn signatures_for_s3_equal_botocores() {
        let at: Timestamp = "2026-11-24T12:00:00Z".parse().expect("a time");
        for (session_token, names, signature) in [
            (
                None,
                "content-type;host;x-amz-content-sha256;x-amz-date",
                "b7dbb596e89520717e16ebe7ba388f7946b7ee4ccc92c9539b2e785654cdc18f",
            ),
            (
                Some("SESSIONTOKEN"),
                "content-type;host;x-amz-content-sha256;x-amz-date;x-amz-security-token",
                "0dd5e6d712e87d22c8cd705dded3c184318d8d4c7d53ec6a736ac92079bfae04",
            ),
        ] {
            let mut request = Request::put(
                "https://storage.example:9000/facts/weir/2026/11/24/120000-boot_1-0.jsonl",
            )
            .header("content-type", "application/x-ndjson")
            .body(Bytes::from_static(b"{\"status\":200}\n"))
            .expect("a request");
            let keys = keys(session_token);
            let scope = AwsScope {
                region: "eu-central-1".into(),
                service: S3.into(),
            };
            sign(&mut request, &keys, &scope, at.into());
            assert_eq!(
                request.headers()[header::AUTHORIZATION],
                format!(
                    "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261124/eu-central-1/s3/aws4_request, \
                     SignedHeaders={names}, Signature={signature}"
                )
            );
            assert_eq!(
                request.headers()[CONTENT_DIGEST],
                "50d97e5f27f239267fec2999bbb75a0f1f894549750144785fbf15f9b936168a"
            );
        }
    }
}
