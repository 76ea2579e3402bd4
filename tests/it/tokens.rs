//! Authentication by tokens: every kind of forgery, and issuers whose keys come late, change or are unavailable.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use tests::issuer::{encode, key_set};
use tests::{Gate, Reply, SigningKey, Upstream, patiently};
use weir_app::config::Config;
use weir_identity::dev_issuer::{DevAudience, DevIssuer};
use weir_identity::jwks::KeySet;
use weir_identity::jwt::{AllowedServices, TokenError, TokenKind, TokenVerifier};
use weir_identity::node_token::NodeTokens;
use weir_identity::service_token::{ServiceTokenError, ServiceTokenSource};
use weir_identity::settings::{Algorithm, IssuerSettings};
use weir_identity::store;
use weir_identity::verifiers::Verifiers;
use weir_outgoing::{self as outgoing, Client};
use weir_storage::Database;
use weir_storage::clock::{Clock, ManualClock, Millis};
use weir_storage::sealing::KeyRing;
use weir_storage::secrets::SecretKey;

const NOW: i64 = 1_800_000_000;

const MINUTE_MS: i64 = 60_000;

const ALL: [Algorithm; 4] = [
    Algorithm::RS256,
    Algorithm::PS256,
    Algorithm::ES256,
    Algorithm::EdDSA,
];

/// A clock that a test sets.
struct Hands(ManualClock);

impl Hands {
    fn new() -> Self {
        Self(ManualClock::at(Millis(NOW * 1_000)))
    }

    fn clock(&self) -> Clock {
        Clock::Manual(self.0.clone())
    }

    fn advance_ms(&self, ms: i64) {
        let ms = u64::try_from(ms).expect("time goes on");
        self.0.advance(Duration::from_millis(ms));
    }
}

fn http() -> Client {
    outgoing::client(Duration::from_secs(5)).expect("a client can be made")
}

fn settings(issuer: &str, audience: &str, jwks_url: Option<String>) -> IssuerSettings {
    IssuerSettings {
        issuer: issuer.into(),
        audience: audience.into(),
        jwks_url,
        algorithms: ALL.to_vec(),
    }
}

/// One kind of token, with a verifier for it. All kinds share their keys: only the claims tell the kinds apart.
struct Kind {
    name: &'static str,
    verifier: TokenVerifier,
    issuer: &'static str,
    audience: &'static str,
}

struct Keys {
    rsa: SigningKey,
    pss: SigningKey,
    ec: SigningKey,
    ed: SigningKey,
    encryption: SigningKey,
    stranger: SigningKey,
}

/// A modulus of 1024 bits, and a token that it verifies; no library here still generates either.
const WEAK_MODULUS: &str = "rq2CT9aW23Ig3QXauUBMR5DWsi8SagTObvDHOnolk3sMyzfR5W7NeTpsWqAOZDa7CSRb1JfElF6SEFV2lG3ppvO34yFIFesxZHOMq1DjGo_BQ2rpFKs0e_nLFPkImSuRDyihI9pncBnbS_QF4c6AzyBPpCm1bsosnTa1KcOLexE";
const WEAK_TOKEN: &str = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6IndlYWsifQ.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJhdWQiOiJhcHAiLCJzdWIiOiJhbGljZSIsImV4cCI6MTgwMDAwMDYwMH0.fDAjwvj6knFmx2ZtLWvHYkjrm4hpB7euip3sy4kj9SYMwOhIVXTWWMnHVPo2VgCO2FS8FsLKEzFPpRh2C9kY_5zRqgiHoeLkungAQoCG_VYUKycSTRIXZF6jhhKJkxuz-0flHJyeR--HNc-hs9z7eo-Erir8kB6Wztc1M7708Kw";

impl Keys {
    fn generate() -> Self {
        Self {
            rsa: SigningKey::generate("rsa", "RS256"),
            pss: SigningKey::generate("pss", "PS256"),
            ec: SigningKey::generate("ec", "ES256"),
            ed: SigningKey::generate("ed", "EdDSA"),
            encryption: SigningKey::generate("encryption", "RS256"),
            stranger: SigningKey::generate("rsa", "RS256"),
        }
    }

    fn kinds(&self) -> [Kind; 3] {
        let mut set = key_set([&self.rsa, &self.pss, &self.ec, &self.ed]);
        let mut encryption = self.encryption.jwk();
        encryption["use"] = json!("enc");
        let weak = json!({ "kty": "RSA", "kid": "weak", "n": WEAK_MODULUS, "e": "AQAB" });
        let others = [
            encryption,
            weak,
            json!({ "kty": "oct", "kid": "oct", "k": "AAAA" }),
        ];
        set["keys"].as_array_mut().expect("a list").extend(others);
        let keys = KeySet::fixed(set.to_string().as_bytes(), &ALL).expect("keys");
        let service = TokenKind::Service {
            allowed: AllowedServices::Only {
                emails: HashMap::from([("robot@example.iam".to_owned(), vec![])]),
                subjects: HashMap::new(),
            },
            scope_claim: "scope".into(),
        };
        let kinds = [
            ("identity", TokenKind::Identity, "https://id.example", "app"),
            (
                "attestation",
                TokenKind::Attestation,
                "https://check.example",
                "app",
            ),
            (
                "service",
                service,
                "https://id.example",
                "https://api.example",
            ),
        ];
        kinds.map(|(name, kind, issuer, audience)| Kind {
            name,
            issuer,
            audience,
            verifier: TokenVerifier::with_keys(
                kind,
                &settings(issuer, audience, None),
                keys.clone(),
                Hands::new().clock(),
            ),
        })
    }
}

impl Kind {
    fn claims(&self) -> Value {
        let mut claims = json!({
            "iss": self.issuer, "aud": self.audience, "sub": "alice",
            "iat": NOW - 10, "exp": NOW + 600,
        });
        if self.name == "service" {
            claims["email"] = json!("robot@example.iam");
            claims["email_verified"] = json!(true);
            claims["scope"] = json!("model:call swarm:run");
        }
        claims
    }

    fn with(&self, name: &str, value: impl Into<Value>) -> Value {
        let mut claims = self.claims();
        claims[name] = value.into();
        claims
    }

    fn without(&self, name: &str) -> Value {
        let mut claims = self.claims();
        claims.as_object_mut().expect("an object").remove(name);
        claims
    }

    /// Returns the claims as text, with more before the closing brace.
    fn and(&self, more: &str) -> String {
        let claims = self.claims().to_string();
        format!("{},{more}}}", claims.trim_end_matches('}'))
    }
}

type Verdict = Result<(), TokenError>;

const GOOD: Verdict = Ok(());
const MALFORMED: Verdict = Err(TokenError::Malformed);
const UNSUPPORTED: Verdict = Err(TokenError::Unsupported);
const UNKNOWN_KEY: Verdict = Err(TokenError::UnknownKey);
const SIGNATURE: Verdict = Err(TokenError::Signature);
const ISSUER: Verdict = Err(TokenError::Issuer);
const AUDIENCE: Verdict = Err(TokenError::Audience);
const EXPIRED: Verdict = Err(TokenError::Expired);
const EARLY: Verdict = Err(TokenError::NotYetValid);
const CLAIM: Verdict = Err(TokenError::Claim);
const NOT_ALLOWED: Verdict = Err(TokenError::NotAllowed);

/// Returns a token for a confused verifier: an HMAC under the public key.
fn hmac_token(header: &Value, claims: &Value, secret: &[u8]) -> String {
    let message = format!(
        "{}.{}",
        encode(header.to_string()),
        encode(claims.to_string())
    );
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("any length");
    mac.update(message.as_bytes());
    format!("{message}.{}", encode(mac.finalize().into_bytes()))
}

fn header_with(key: &SigningKey, name: &str, value: impl Into<Value>) -> String {
    let mut header = key.header();
    header[name] = value.into();
    header.to_string()
}

fn header_without(key: &SigningKey, name: &str) -> String {
    let mut header = key.header();
    header.as_object_mut().expect("an object").remove(name);
    header.to_string()
}

/// Returns an ECDSA signature in the form of most libraries, which tokens must not have.
fn der_signature(fixed: &[u8]) -> Vec<u8> {
    let integer = |half: &[u8]| {
        let mut bytes = vec![0];
        bytes.extend(half);
        [&[2, bytes.len() as u8][..], &bytes].concat()
    };
    let (r, s) = fixed.split_at(32);
    let both = [integer(r), integer(s)].concat();
    [&[0x30, both.len() as u8][..], &both].concat()
}

/// Returns every token, its name, and its verdict.
#[rustfmt::skip]
fn vectors(kind: &Kind, keys: &Keys) -> Vec<(&'static str, String, Verdict)> {
    let Keys { rsa, pss, ec, ed, encryption, stranger } = keys;
    let good = rsa.token(&kind.claims());
    let (message, signature) = good.rsplit_once('.').expect("three parts");
    let (header, payload) = message.split_once('.').expect("three parts");
    let claims = kind.claims().to_string();
    let is_service = kind.name == "service";
    let head = |name: &str, value: Value| rsa.token_of(&header_with(rsa, name, value), &claims);
    let with = |name: &str, value: Value| rsa.token(&kind.with(name, value));
    let unsigned = |alg: &str, signature: &str| {
        let header = encode(header_with(rsa, "alg", alg));
        format!("{header}.{payload}.{signature}")
    };
    let hmac = |secret: &[u8]| {
        let header = json!({ "alg": "HS256", "typ": "JWT", "kid": "rsa" });
        hmac_token(&header, &kind.claims(), secret)
    };
    let other_signature = rsa.token(&kind.with("sub", "mallory")).rsplit_once('.').expect("three parts").1.to_owned();
    let ec_good = ec.token(&kind.claims());
    let (ec_message, _) = ec_good.rsplit_once('.').expect("three parts");
    let mut last = signature.as_bytes().to_vec();
    // The last character of 342 holds two bits of the signature; this sets one of the four beyond them.
    *last.last_mut().expect("a signature") = match last[last.len() - 1] { b'A' => b'B', b'Q' => b'R', b'g' => b'h', _ => b'x' };
    let loose_bits = String::from_utf8(last).expect("ASCII");
    let mut attacker = stranger.jwk();
    attacker["kid"] = json!("rsa");
    let key_text = serde_json::to_string(&rsa.jwk()).expect("JSON");

    let mut vectors = vec![
        // Valid tokens.
        ("RS256", good.clone(), GOOD),
        ("PS256", pss.token(&kind.claims()), GOOD),
        ("ES256", ec_good.clone(), GOOD),
        ("EdDSA", ed.token(&kind.claims()), GOOD),
        ("aud is a list with ours", with("aud", json!(["other", kind.audience])), GOOD),
        ("no typ", rsa.token_of(&header_without(rsa, "typ"), &claims), GOOD),
        ("typ in lower case", head("typ", json!("jwt")), GOOD),
        ("typ as a whole media type", head("typ", json!("application/JWT")), GOOD),
        ("exp 59 s ago", with("exp", json!(NOW - 59)), GOOD),
        ("nbf 60 s ahead", with("nbf", json!(NOW + 60)), GOOD),
        ("iat 60 s ahead", with("iat", json!(NOW + 60)), GOOD),
        ("exp is a whole number with a fraction of 0", with("exp", json!(1_800_000_600.0)), GOOD),
        ("exp is a whole number with an exponent", rsa.token_of(&rsa.header().to_string(), &claims.replace("1800000600", "18000006e2")), GOOD),
        ("no iat", rsa.token(&kind.without("iat")), GOOD),
        ("sub of 255 bytes", with("sub", json!("s".repeat(255))), GOOD),
        ("an unknown header", head("extra", json!({ "a": 1 })), GOOD),
        ("jku, which nobody follows", head("jku", json!("https://mallory.example/keys")), GOOD),

        // Algorithms.
        ("alg none", unsigned("none", ""), UNSUPPORTED),
        ("alg None", unsigned("None", ""), UNSUPPORTED),
        ("alg nOnE", unsigned("nOnE", ""), UNSUPPORTED),
        ("alg NONE with a signature", unsigned("NONE", signature), UNSUPPORTED),
        ("an empty header", format!("e30.{payload}."), UNSUPPORTED),
        ("HS256 with the public key in DER as the secret", hmac(&rsa.public_der()), UNSUPPORTED),
        ("HS256 with the public key in JSON as the secret", hmac(key_text.as_bytes()), UNSUPPORTED),
        ("HS256 with an empty secret", hmac(b""), UNSUPPORTED),
        ("HS384", unsigned("HS384", signature), UNSUPPORTED),
        ("HS512", unsigned("HS512", signature), UNSUPPORTED),
        ("RS512", unsigned("RS512", signature), UNSUPPORTED),
        ("ES384", unsigned("ES384", signature), UNSUPPORTED),
        ("alg in lower case", head("alg", json!("rs256")), UNSUPPORTED),
        ("alg with a space", head("alg", json!("RS256 ")), UNSUPPORTED),
        ("alg is a number", head("alg", json!(256)), UNSUPPORTED),
        ("alg is a list", head("alg", json!(["RS256"])), UNSUPPORTED),
        ("no alg", rsa.token_of(&header_without(rsa, "alg"), &claims), UNSUPPORTED),
        ("PS256 with a key for RS256", head("alg", json!("PS256")), UNSUPPORTED),
        ("ES256 with an RSA key", head("alg", json!("ES256")), UNSUPPORTED),
        ("EdDSA with an EC key", ec.token_of(&header_with(ec, "alg", "EdDSA"), &claims), UNSUPPORTED),

        // Signatures.
        ("another's signature", stranger.token(&kind.claims()), SIGNATURE),
        ("another's key in the header", stranger.token_of(&header_with(stranger, "jwk", attacker), &claims), SIGNATURE),
        ("the signature of another token", format!("{message}.{other_signature}"), SIGNATURE),
        ("the payload of another token", format!("{header}.{}.{signature}", encode(kind.with("sub", "mallory").to_string())), SIGNATURE),
        ("no signature", format!("{message}."), SIGNATURE),
        ("half a signature", format!("{message}.{}", &signature[..signature.len() / 2 / 4 * 4]), SIGNATURE),
        ("a signature of zeros", format!("{message}.{}", encode([0; 256])), SIGNATURE),
        ("an ECDSA signature of zeros", format!("{ec_message}.{}", encode([0; 64])), SIGNATURE),
        ("an ECDSA signature in DER", format!("{ec_message}.{}", encode(der_signature(&ec.sign(ec_message.as_bytes())))), SIGNATURE),
        ("loose bits after the signature", format!("{message}.{loose_bits}"), MALFORMED),

        // Issuer and audience.
        ("iss with a trailing slash", with("iss", json!(format!("{}/", kind.issuer))), ISSUER),
        ("iss in upper case", with("iss", json!(kind.issuer.to_uppercase())), ISSUER),
        ("another iss", with("iss", json!("https://mallory.example")), ISSUER),
        ("no iss", rsa.token(&kind.without("iss")), ISSUER),
        ("iss is a list", with("iss", json!([kind.issuer])), CLAIM),
        ("another aud", with("aud", json!("other")), AUDIENCE),
        ("aud that begins with ours", with("aud", json!(format!("{}2", kind.audience))), AUDIENCE),
        ("aud is a list without ours", with("aud", json!(["a", "b"])), AUDIENCE),
        ("aud is an empty list", with("aud", json!([])), AUDIENCE),
        ("aud is a list with ours in a list", with("aud", json!([[kind.audience]])), CLAIM),
        ("aud is a list with a number beside ours", with("aud", json!([kind.audience, 1])), CLAIM),
        ("aud is an object", with("aud", json!({ kind.audience: true })), CLAIM),
        ("aud is null", with("aud", Value::Null), CLAIM),
        ("no aud", rsa.token(&kind.without("aud")), CLAIM),
        ("no sub", rsa.token(&kind.without("sub")), CLAIM),
        ("an empty sub", with("sub", json!("")), CLAIM),
        ("sub is a number", with("sub", json!(42)), CLAIM),
        ("sub of 256 bytes", with("sub", json!("s".repeat(256))), CLAIM),
        ("sub with a NUL", with("sub", json!("alice\0")), CLAIM),

        // Times.
        ("no exp", rsa.token(&kind.without("exp")), CLAIM),
        ("exp is null", with("exp", Value::Null), CLAIM),
        ("exp is a text", with("exp", json!((NOW + 600).to_string())), CLAIM),
        ("exp has a fraction", with("exp", json!(1_800_000_600.5)), CLAIM),
        ("exp is true", with("exp", json!(true)), CLAIM),
        ("exp is negative", with("exp", json!(-1)), CLAIM),
        ("exp is in the year 10000", with("exp", json!(253_402_300_800_i64)), CLAIM),
        ("exp is in milliseconds, and thus beyond all years", with("exp", json!((NOW + 600) * 1_000)), CLAIM),
        ("exp is the greatest of 64 bits", with("exp", json!(u64::MAX)), CLAIM),
        ("exp is 1e300", with("exp", json!(1e300)), CLAIM),
        ("exp is 0", with("exp", json!(0)), EXPIRED),
        ("exp 60 s ago", with("exp", json!(NOW - 60)), EXPIRED),
        ("exp 61 s ago", with("exp", json!(NOW - 61)), EXPIRED),
        ("nbf is a text", with("nbf", json!((NOW - 10).to_string())), CLAIM),
        ("nbf has a fraction", with("nbf", json!(1_799_999_990.5)), CLAIM),
        ("nbf is negative", with("nbf", json!(-5)), CLAIM),
        ("nbf is huge", with("nbf", json!(i64::MAX)), CLAIM),
        ("nbf is null", with("nbf", Value::Null), CLAIM),
        ("nbf 61 s ahead", with("nbf", json!(NOW + 61)), EARLY),
        ("iat is a text", with("iat", json!("now")), CLAIM),
        ("iat 61 s ahead", with("iat", json!(NOW + 61)), EARLY),

        // Repeated names.
        ("exp twice", rsa.token_of(&rsa.header().to_string(), &kind.and(r#""exp":1800009999"#)), MALFORMED),
        ("sub twice", rsa.token_of(&rsa.header().to_string(), &kind.and(r#""sub":"mallory""#)), MALFORMED),
        ("sub twice, once in disguise", rsa.token_of(&rsa.header().to_string(), &kind.and(r#""\u0073ub":"mallory""#)), MALFORMED),
        ("a name twice further in", rsa.token_of(&rsa.header().to_string(), &kind.and(r#""a":{"b":1,"b":2}"#)), MALFORMED),
        ("alg twice", rsa.token_of(r#"{"alg":"none","alg":"RS256","kid":"rsa"}"#, &claims), MALFORMED),

        // Key ids.
        ("no kid", rsa.token_of(&header_without(rsa, "kid"), &claims), MALFORMED),
        ("an empty kid", head("kid", json!("")), MALFORMED),
        ("kid is a number", head("kid", json!(0)), MALFORMED),
        ("kid is a path", head("kid", json!("../../../../dev/null")), UNKNOWN_KEY),
        ("kid is SQL", head("kid", json!("x' UNION SELECT 'rsa' --")), UNKNOWN_KEY),
        ("kid of 257 characters", head("kid", json!("k".repeat(257))), MALFORMED),
        ("kid of 10 KiB", head("kid", json!("k".repeat(10 << 10))), MALFORMED),
        ("kid of a key for encryption", encryption.token(&kind.claims()), UNKNOWN_KEY),
        ("kid of a shared secret", head("kid", json!("oct")), UNKNOWN_KEY),
        ("a key of 1024 bits", WEAK_TOKEN.into(), UNKNOWN_KEY),

        // Extensions and types.
        ("an unknown crit", rsa.token_of(r#"{"alg":"RS256","kid":"rsa","crit":["x"],"x":1}"#, &claims), UNSUPPORTED),
        ("crit with a claim's name", head("crit", json!(["exp"])), UNSUPPORTED),
        ("crit with b64", rsa.token_of(r#"{"alg":"RS256","kid":"rsa","crit":["b64"],"b64":false}"#, &claims), UNSUPPORTED),
        ("an empty crit", head("crit", json!([])), UNSUPPORTED),
        ("crit is a text", head("crit", json!("exp")), UNSUPPORTED),
        ("typ of a security event", head("typ", json!("secevent+jwt")), UNSUPPORTED),
        ("typ of a logout", head("typ", json!("logout+jwt")), UNSUPPORTED),
        ("typ of a DPoP proof", head("typ", json!("dpop+jwt")), UNSUPPORTED),
        ("an empty typ", head("typ", json!("")), UNSUPPORTED),
        ("typ is a number", head("typ", json!(1)), MALFORMED),
        ("typ of an access token", head("typ", json!("at+jwt")), if is_service { GOOD } else { UNSUPPORTED }),

        // Shapes.
        ("nothing", String::new(), MALFORMED),
        ("two dots", "..".into(), MALFORMED),
        ("one part", header.into(), MALFORMED),
        ("two parts", message.into(), MALFORMED),
        ("four parts", format!("{good}.{signature}"), MALFORMED),
        ("four parts, one empty", format!("{good}."), MALFORMED),
        ("five parts, as an encrypted token has them", format!("{header}.{payload}.{payload}.{payload}.{signature}"), MALFORMED),
        ("an encrypted token", rsa.token_of(r#"{"alg":"RSA-OAEP","enc":"A256GCM","kid":"rsa"}"#, &claims), UNSUPPORTED),
        ("padding after the header", format!("{header}=.{payload}.{signature}"), MALFORMED),
        ("padding after the payload", format!("{header}.{payload}==.{signature}"), MALFORMED),
        ("padding after the signature", format!("{good}=="), MALFORMED),
        ("a space before", format!(" {good}"), MALFORMED),
        ("a line's end after", format!("{good}\n"), MALFORMED),
        ("the other alphabet", format!("{message}.{}", STANDARD.encode(rsa.sign(message.as_bytes()))), MALFORMED),
        ("the JSON serialization", json!({ "protected": header, "payload": payload, "signature": signature }).to_string(), MALFORMED),
        ("a payload that is no JSON", rsa.token_of(&rsa.header().to_string(), "alice"), MALFORMED),
        ("an empty payload", rsa.token_of(&rsa.header().to_string(), ""), MALFORMED),
        ("a payload that is a list", rsa.token_of(&rsa.header().to_string(), &format!("[{claims}]")), MALFORMED),
        ("more after the payload", rsa.token_of(&rsa.header().to_string(), &format!("{claims}{{}}")), MALFORMED),
        ("a byte order mark", rsa.token_of(&rsa.header().to_string(), &format!("\u{feff}{claims}")), MALFORMED),
        ("a payload nested deep", rsa.token_of(&rsa.header().to_string(), &kind.and(&format!(r#""a":{}{}"#, "[".repeat(1_000), "]".repeat(1_000)))), MALFORMED),
        ("9 KiB", with("padding", json!("p".repeat(9 << 10))), MALFORMED),

        // E-mail addresses.
        ("email is a number", with("email", json!(1)), CLAIM),
        ("email_verified is a text", with("email_verified", json!("true")), if is_service { NOT_ALLOWED } else { GOOD }),
        ("email_verified is 1", with("email_verified", json!(1)), if is_service { NOT_ALLOWED } else { GOOD }),
        ("email_verified is false", with("email_verified", json!(false)), if is_service { NOT_ALLOWED } else { GOOD }),
        ("no email_verified", rsa.token(&kind.without("email_verified")), if is_service { NOT_ALLOWED } else { GOOD }),
    ];
    if is_service {
        vectors.extend([
            ("an email that is not let in", with("email", json!("mallory@example.iam")), NOT_ALLOWED),
            ("an email in upper case", with("email", json!("ROBOT@example.iam")), NOT_ALLOWED),
            ("an email with more after it", with("email", json!("robot@example.iam.mallory.example")), NOT_ALLOWED),
            ("no email", rsa.token(&kind.without("email")), NOT_ALLOWED),
            ("scope is a list", with("scope", json!(["model:call", "swarm:run"])), GOOD),
            ("scope is a number", with("scope", json!(1)), CLAIM),
            ("scope is a list with a number", with("scope", json!(["model:call", 1])), CLAIM),
        ]);
    }
    vectors
}

#[tokio::test]
async fn every_token_gets_the_verdict_that_it_deserves() {
    let keys = Keys::generate();
    let (mut tried, mut wrong) = (0, Vec::new());
    for kind in keys.kinds() {
        for (name, token, expected) in vectors(&kind, &keys) {
            tried += 1;
            let verdict = kind.verifier.verify(&token).await.map(drop);
            if verdict != expected {
                wrong.push(format!(
                    "{}, {name}: {verdict:?}, not {expected:?}",
                    kind.name
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {tried}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(tried > 3 * 120, "{tried}");
}

#[tokio::test]
async fn no_kind_of_token_passes_for_another() {
    let keys = Keys::generate();
    let kinds = keys.kinds();
    for presented in &kinds {
        for verifier in &kinds {
            let token = keys.rsa.token(&presented.claims());
            let verdict = verifier.verifier.verify(&token).await;
            let same = presented.name == verifier.name;
            assert_eq!(
                verdict.is_ok(),
                same,
                "{} as {}",
                presented.name,
                verifier.name
            );
            if let Err(error) = verdict {
                assert!(
                    matches!(error, TokenError::Issuer | TokenError::Audience),
                    "{error}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_token_says_whom_it_names_and_what_that_one_may_do() {
    let keys = Keys::generate();
    let [identity, _, service] = keys.kinds();
    let token = keys.rsa.token(&identity.with("email_verified", "true"));
    let verified = identity.verifier.verify(&token).await.expect("good");
    assert_eq!(
        (&*verified.issuer, &*verified.subject),
        ("https://id.example", "alice")
    );
    assert!(verified.scopes.is_empty());
    assert_eq!(verified.expires_at, Millis((NOW + 600) * 1_000));
    for scope in [
        json!("model:call  swarm:run"),
        json!(["model:call", "swarm:run"]),
    ] {
        let token = keys.rsa.token(&service.with("scope", scope));
        let verified = service.verifier.verify(&token).await.expect("good");
        assert_eq!(verified.scopes, ["model:call", "swarm:run"]);
        assert_eq!(verified.email.as_deref(), Some("robot@example.iam"));
    }
    let executor = service
        .verifier
        .for_audience("https://executor.example".into());
    let token = keys.rsa.token(&service.claims());
    assert_eq!(executor.verify(&token).await, Err(TokenError::Audience));
}

/// An issuer on a socket, a verifier of its tokens, and their common clock.
struct Setup {
    issuer: Upstream,
    verifier: TokenVerifier,
    hands: Hands,
}

impl Setup {
    async fn start() -> Self {
        let issuer = Upstream::start().await;
        let hands = Hands::new();
        let url = Some(format!("{}/keys", issuer.base_url()));
        let settings = settings("https://id.example", "app", url);
        let verifier = TokenVerifier::new(TokenKind::Identity, &settings, http(), hands.clock())
            .expect("an address");
        Self {
            issuer,
            verifier,
            hands,
        }
    }

    fn publish(&self, keys: &[&SigningKey]) {
        self.issuer.always(published(keys));
    }

    fn token(&self, key: &SigningKey) -> String {
        let now = self.hands.clock().now().seconds();
        key.token(&json!({
            "iss": "https://id.example", "aud": "app", "sub": "alice", "exp": now + 600,
        }))
    }

    async fn verify(&self, key: &SigningKey) -> Verdict {
        patiently(self.verifier.verify(&self.token(key)))
            .await
            .map(drop)
    }
}

fn published(keys: &[&SigningKey]) -> Reply {
    Reply::json(200, &key_set(keys.iter().copied()))
}

fn ed25519(kid: &str) -> SigningKey {
    SigningKey::generate(kid, "EdDSA")
}

#[tokio::test]
async fn a_thousand_unknown_keys_cost_two_fetches_in_thirty_seconds() {
    let setup = Setup::start().await;
    let known = ed25519("known");
    setup.publish(&[&known]);
    let tokens: Vec<_> = (0..1_000)
        .map(|index| setup.token(&ed25519(&format!("unknown-{index}"))))
        .collect();
    // In bursts of 50, one every 1.5 s.
    for burst in tokens.chunks(50) {
        let verdicts = join_all(burst.iter().map(|token| setup.verifier.verify(token))).await;
        assert!(
            verdicts
                .iter()
                .all(|verdict| *verdict == Err(TokenError::UnknownKey))
        );
        setup.hands.advance_ms(1_500);
    }
    assert!(
        setup.issuer.count() <= 2,
        "{} fetches",
        setup.issuer.count()
    );
    assert_eq!(setup.verify(&known).await, GOOD);
}

#[tokio::test]
async fn requests_at_the_same_time_share_one_fetch() {
    let setup = Setup::start().await;
    let (key, gate) = (ed25519("a"), Gate::new());
    setup.issuer.always(published(&[&key]).after_gate(&gate));
    let requests = join_all((0..100).map(|_| setup.verify(&key)));
    let (verdicts, ()) = tokio::join!(requests, async {
        gate.reached().await;
        gate.open();
    });
    assert!(
        verdicts.iter().all(|verdict| *verdict == GOOD),
        "{verdicts:?}"
    );
    assert_eq!(setup.issuer.count(), 1);
}

#[tokio::test]
async fn a_client_that_hangs_up_does_not_undo_a_fetch() {
    let setup = Setup::start().await;
    let (key, gate) = (ed25519("a"), Gate::new());
    setup.issuer.always(published(&[&key]).after_gate(&gate));
    for _ in 0..10 {
        tokio::select! {
            biased;
            _ = setup.verify(&key) => panic!("there are no keys yet"),
            () = gate.reached() => {}
        }
    }
    gate.open();
    assert_eq!(setup.verify(&key).await, GOOD);
    assert_eq!(setup.issuer.count(), 1);
}

#[tokio::test]
async fn a_new_key_is_accepted_within_35_seconds_and_an_old_one_ends() {
    let setup = Setup::start().await;
    let (old, new) = (ed25519("old"), ed25519("new"));
    setup.publish(&[&old]);
    assert_eq!(setup.verify(&old).await, GOOD);
    setup.publish(&[&new]);
    let mut seconds = 0;
    while setup.verify(&new).await != GOOD {
        setup.hands.advance_ms(1_000);
        seconds += 1;
        assert!(seconds <= 35);
    }
    assert_eq!(setup.verify(&old).await, UNKNOWN_KEY);
    assert_eq!(setup.issuer.count(), 2);
}

#[tokio::test]
async fn known_keys_outlive_an_issuer_that_is_down_by_a_day() {
    let setup = Setup::start().await;
    let (known, unknown) = (ed25519("known"), ed25519("unknown"));
    setup.publish(&[&known]);
    assert_eq!(setup.verify(&known).await, GOOD);
    setup.issuer.always(Reply::reset());
    for _ in 0..10 {
        assert_eq!(setup.verify(&known).await, GOOD);
        setup.hands.advance_ms(MINUTE_MS);
    }
    for _ in 0..24 {
        assert_eq!(setup.verify(&known).await, GOOD);
        setup.hands.advance_ms(60 * MINUTE_MS - 1);
    }
    assert_eq!(setup.verify(&known).await, GOOD, "24 h and 10 min later");
    assert_eq!(setup.verify(&unknown).await, Err(TokenError::Unavailable));
    setup.hands.advance_ms(30 * MINUTE_MS);
    assert_eq!(setup.verify(&known).await, Err(TokenError::Unavailable));
    setup.publish(&[&known]);
    setup.hands.advance_ms(15_001);
    assert_eq!(setup.verify(&known).await, GOOD, "it is back");
}

#[tokio::test]
async fn without_keys_nothing_can_be_said_of_a_token() {
    let setup = Setup::start().await;
    let key = ed25519("a");
    setup.issuer.always(Reply::reset());
    let tokens = vec![setup.token(&key); 100];
    let verdicts = join_all(tokens.iter().map(|token| setup.verifier.verify(token))).await;
    assert!(
        verdicts
            .iter()
            .all(|verdict| *verdict == Err(TokenError::Unavailable))
    );
    assert!(setup.issuer.count() <= 1, "{}", setup.issuer.count());
    setup.publish(&[&key]);
    setup.hands.advance_ms(15_001);
    assert_eq!(setup.verify(&key).await, GOOD);
}

#[tokio::test]
async fn keys_are_fetched_anew_at_the_age_that_the_issuer_gave_them() {
    let setup = Setup::start().await;
    let (key, other) = (ed25519("a"), ed25519("b"));
    let answer = || published(&[&key]).header("cache-control", "public, max-age=600");
    setup.issuer.always(answer());
    assert_eq!(setup.verify(&key).await, GOOD);
    setup.hands.advance_ms(10 * MINUTE_MS - 1);
    assert_eq!((setup.verify(&key).await, setup.issuer.count()), (GOOD, 1));
    // Due now: served at once, while a fetch runs in the background.
    setup.hands.advance_ms(1);
    let gate = Gate::new();
    setup.issuer.always(answer().after_gate(&gate));
    assert_eq!(setup.verify(&key).await, GOOD);
    gate.reached().await;
    assert_eq!((setup.verify(&key).await, setup.issuer.count()), (GOOD, 2));
    gate.open();
    assert_eq!(setup.verify(&other).await, UNKNOWN_KEY);
    // Long overdue, since no token came: the key may be withdrawn by now, and is.
    setup.publish(&[&other]);
    setup.hands.advance_ms(60 * MINUTE_MS);
    assert_eq!(setup.verify(&key).await, UNKNOWN_KEY);
    assert_eq!(setup.verify(&other).await, GOOD);
}

#[tokio::test]
async fn answers_that_are_no_keys_leave_the_known_ones_alone() {
    let setup = Setup::start().await;
    let (key, other) = (ed25519("a"), ed25519("b"));
    setup.publish(&[&key]);
    assert_eq!(setup.verify(&key).await, GOOD);
    let elsewhere = Upstream::start().await;
    elsewhere.always(published(&[&other]));
    let many: Vec<_> = (0..101).map(|index| json!({ "kid": index })).collect();
    let padded = format!("{}{}", " ".repeat(256 << 10), key_set([&other]));
    let answers = [
        Reply::redirect(302, &format!("{}/keys", elsewhere.base_url())),
        Reply::new(200).body(padded),
        Reply::json(200, &json!({ "keys": many })),
        Reply::json(200, &json!({ "keys": [] })),
        Reply::json(200, &json!({})),
        Reply::json(500, &key_set([&other])),
        Reply::new(204),
        Reply::new(200).body("<html>"),
        published(&[&other]).cut_after(20),
        Reply::drip_head(Duration::from_millis(50)),
    ];
    for (index, answer) in answers.into_iter().enumerate() {
        setup.issuer.always(answer);
        setup.hands.advance_ms(15_001);
        assert_eq!(
            setup.verify(&other).await,
            Err(TokenError::Unavailable),
            "{index}"
        );
        assert_eq!(setup.verify(&key).await, GOOD, "{index}");
        assert_eq!(setup.issuer.count(), index + 2);
    }
    assert_eq!(elsewhere.count(), 0);
}

#[tokio::test]
async fn keys_are_found_through_the_issuers_own_document() {
    let issuer = Upstream::start().await;
    let (hands, key) = (Hands::new(), ed25519("a"));
    let base = issuer.base_url();
    let verifier = || {
        let settings = settings(&base, "app", None);
        TokenVerifier::new(TokenKind::Identity, &settings, http(), hands.clock()).expect("a URL")
    };
    let token = key.token(&json!({ "iss": base, "aud": "app", "sub": "a", "exp": NOW + 600 }));
    let document = |issuer: &str| {
        let keys = format!("{base}/certificates?v=1");
        Reply::json(200, &json!({ "issuer": issuer, "jwks_uri": keys }))
    };
    issuer.will(document(&base)).will(published(&[&key]));
    assert_eq!(verifier().verify(&token).await.map(drop), GOOD);
    let paths: Vec<_> = issuer
        .requests()
        .into_iter()
        .map(|request| request.path)
        .collect();
    assert_eq!(
        paths,
        ["/.well-known/openid-configuration", "/certificates?v=1"]
    );
    issuer
        .will(document("https://mallory.example"))
        .always(published(&[&key]));
    assert_eq!(
        verifier().verify(&token).await,
        Err(TokenError::Unavailable)
    );
    assert_eq!(issuer.count(), 3);
}

fn config(folder: &Path, more: &str) -> Config {
    let data = folder.join("data");
    Config::from_toml(&format!("data_dir = {data:?}\n{more}")).expect("it fits")
}

#[tokio::test]
async fn the_local_issuers_tokens_are_worth_something_in_development_mode_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let (hands, now) = (Hands::new(), Millis(NOW * 1_000));
    let dev = config(folder.path(), "");
    let issuer = dev.dev_issuer().expect("a key").expect("development mode");
    let verifiers = |config: &Config| {
        let dev = config.dev_issuer().expect("a key");
        Verifiers::new(&config.identity, dev.as_ref(), &http(), &hands.clock()).expect("they fit")
    };
    let local = verifiers(&dev);
    let [identity, attestation, api, executor] =
        [local.identity, local.attestation, local.api, local.executor].map(|v| v.expect("one"));

    let web = issuer.web_tokens("alice", now).expect("tokens");
    let verified = identity.verify(web.identity.expose()).await.expect("good");
    assert_eq!(
        (&*verified.issuer, &*verified.subject),
        ("urn:weir:dev:identity", "alice")
    );
    let service = |audience| {
        issuer
            .service_token(audience, "robot@example", &["model:call", "swarm:run"], now)
            .expect("a token")
    };
    let at_api = service(DevAudience::Api);
    let verified = api.verify(at_api.expose()).await.expect("good");
    assert_eq!(verified.scopes, ["model:call", "swarm:run"]);
    let tokens = [
        web.identity,
        web.attestation,
        at_api,
        service(DevAudience::Executor),
    ];
    for (at, verifier) in [&identity, &attestation, &api, &executor]
        .into_iter()
        .enumerate()
    {
        for (index, token) in tokens.iter().enumerate() {
            assert_eq!(
                verifier.verify(token.expose()).await.is_ok(),
                at == index,
                "{at} {index}"
            );
        }
    }
    let stranger = DevIssuer::with_key(&SecretKey::new([1; 32])).expect("an issuer");
    let forged = stranger.web_tokens("alice", now).expect("tokens");
    assert_eq!(
        identity.verify(forged.identity.expose()).await,
        Err(TokenError::UnknownKey)
    );
    hands.advance_ms(62 * MINUTE_MS);
    assert_eq!(
        identity.verify(tokens[0].expose()).await,
        Err(TokenError::Expired)
    );

    let others = verifiers(&config(folder.path(), "dev = false"));
    assert!(others.identity.is_none() && others.attestation.is_none());
    assert!(others.api.is_none() && others.executor.is_none());
    let configured = "[identity.web]\nissuer = 'https://id.example'\naudience = 'app'\n\
                      [identity.attestation]\nissuer = 'https://check.example'\naudience = 'app'\n";
    let mixed = verifiers(&config(folder.path(), configured));
    assert_eq!(mixed.identity.expect("one").issuer(), "https://id.example");
    assert_eq!(mixed.api.expect("one").issuer(), "urn:weir:dev:service");
}

fn client_credentials(endpoint: &Upstream, folder: &Path, hands: &Hands) -> ServiceTokenSource {
    let secret = folder.join("secret");
    std::fs::write(&secret, "s3cr&t\n").expect("the folder can be written");
    let config = config(
        folder,
        &format!(
            "[identity.outgoing.client_credentials]\ntoken_url = \"{}/token\"\nclient_id = \"we:ir\"\n\
             client_secret = {{ file = {secret:?} }}\naudience = \"https://api.example\"\nscope = \"a b\"\n",
            endpoint.base_url()
        ),
    );
    let outgoing = config.identity.outgoing.as_ref();
    let nodes = NodeTokens::new(KeyRing::of([]), hands.clock());
    ServiceTokenSource::new(outgoing, nodes, &http(), &hands.clock()).expect("it fits")
}

fn issued(token: &str, expires_in: i64) -> Reply {
    let answer = json!({ "access_token": token, "token_type": "Bearer", "expires_in": expires_in });
    Reply::json(200, &answer)
}

#[tokio::test]
async fn a_token_endpoint_is_asked_once_for_as_long_as_its_token_is_good() {
    let folder = tempfile::tempdir().expect("a folder");
    let (endpoint, hands) = (Upstream::start().await, Hands::new());
    let source = client_credentials(&endpoint, folder.path(), &hands);
    endpoint.will(issued("first", 600));
    let tokens = join_all((0..50).map(|_| source.token())).await;
    assert!(
        tokens
            .iter()
            .flatten()
            .all(|token| token.expose() == "first")
    );
    assert_eq!((tokens.iter().flatten().count(), endpoint.count()), (50, 1));
    let request = endpoint.next_request().await;
    assert_eq!((&*request.method, &*request.path), ("POST", "/token"));
    assert_eq!(
        request.header("authorization"),
        Some(&*format!("Basic {}", STANDARD.encode("we%3Air:s3cr%26t")))
    );
    assert_eq!(
        request.body,
        "grant_type=client_credentials&audience=https%3A%2F%2Fapi.example&scope=a%20b"
    );
    hands.advance_ms(9 * MINUTE_MS - 1);
    assert_eq!(source.token().await.expect("a token").expose(), "first");
    // A minute before its end it is replaced, or used further if the fetch fails.
    endpoint
        .will(Reply::error(500, "down"))
        .will(issued("second", 600));
    hands.advance_ms(1);
    assert_eq!(source.token().await.expect("a token").expose(), "first");
    assert_eq!(source.token().await.expect("a token").expose(), "first");
    assert_eq!(endpoint.count(), 2);
    hands.advance_ms(2_000);
    assert_eq!(source.token().await.expect("a token").expose(), "second");
}

#[tokio::test]
async fn a_token_endpoint_that_fails_is_left_alone_for_a_moment() {
    let folder = tempfile::tempdir().expect("a folder");
    let (endpoint, hands) = (Upstream::start().await, Hands::new());
    let source = client_credentials(&endpoint, folder.path(), &hands);
    for answer in [
        Reply::error(401, "no"),
        Reply::new(200).body("no"),
        issued("two words", 600),
        Reply::json(200, &json!({ "access_token": "a", "token_type": "mac" })),
    ] {
        endpoint.always(answer);
        let before = endpoint.count();
        for outcome in join_all((0..20).map(|_| source.token())).await {
            let error = outcome.expect_err("no token");
            assert!(matches!(error, ServiceTokenError::Endpoint(_)), "{error}");
            assert!(!format!("{error:?} {error}").contains("two words"));
        }
        assert_eq!(endpoint.count(), before + 1);
        hands.advance_ms(2_000);
    }
}

#[tokio::test]
async fn a_token_file_is_used_as_it_is_at_the_moment() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    let config = config(folder.path(), &format!("identity.outgoing.file = {file:?}"));
    let outgoing = config.identity.outgoing.as_ref();
    let nodes = NodeTokens::new(KeyRing::of([]), Clock::System);
    let source =
        ServiceTokenSource::new(outgoing, nodes, &http(), &Clock::System).expect("it fits");
    assert!(source.token().await.is_err(), "there is no file");
    for token in ["first", "second"] {
        std::fs::write(&file, format!("{token}\n")).expect("the folder can be written");
        assert_eq!(source.token().await.expect("a token").expose(), token);
    }
    for bad in ["", "two words", &"t".repeat(17 << 10)] {
        std::fs::write(&file, bad).expect("the folder can be written");
        let error = source.token().await.expect_err("no token").to_string();
        assert!(
            error.contains("token") && !error.contains("two words"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_user_of_an_issuers_appears_once_however_many_requests_come_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = Database::open(&config(folder.path(), "").database_url())
        .await
        .expect("a database");
    let now = Millis(NOW * 1_000);
    let find = |issuer: &'static str, subject: &'static str| {
        let database = database.clone();
        tokio::spawn(async move {
            store::find_or_create_web_user(&database, issuer, subject, now)
                .await
                .expect("a user")
        })
    };
    let found = join_all((0..40).map(|_| find("https://id.example", "alice"))).await;
    let users: HashSet<_> = found
        .into_iter()
        .map(|user| user.expect("no panic").id)
        .collect();
    assert_eq!(users.len(), 1);
    let alice = find("https://id.example", "alice").await.expect("no panic");
    assert!(
        users.contains(&alice.id) && alice.id.starts_with("usr_"),
        "{alice:?}"
    );
    assert_eq!(
        (alice.plan.at(Millis(0)), alice.admin_since),
        (weir_ledger::Plan::Free, None)
    );
    for (issuer, subject) in [
        ("https://other.example", "alice"),
        ("https://id.example", "Alice"),
    ] {
        assert_ne!(find(issuer, subject).await.expect("no panic").id, alice.id);
    }
    assert!(
        store::grant_admin(&database, &alice.id, now)
            .await
            .expect("written")
    );
    assert!(
        !store::grant_admin(&database, "usr_nobody", now)
            .await
            .expect("written")
    );
    let alice = find("https://id.example", "alice").await.expect("no panic");
    assert_eq!(alice.admin_since, Some(now));
}
