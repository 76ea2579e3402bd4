//! `SigningKey`: the key of an issuer of tokens, which signs any text.
//!
//! Header and claims are texts, so that a test can write invalid ones: a name twice, a number as a text, an algorithm
//! other than the one used.

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// A private key with a name.
pub struct SigningKey {
    kid: String,
    algorithm: &'static str,
    pair: Pair,
}

enum Pair {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

impl SigningKey {
    /// Generates a key for `RS256`, `PS256`, `ES256` or `EdDSA`.
    pub fn generate(kid: &str, algorithm: &'static str) -> Self {
        let pair = match algorithm {
            "RS256" | "PS256" => RsaKeyPair::generate(KeySize::Rsa2048).map(Pair::Rsa),
            "ES256" => EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map(Pair::Ec),
            "EdDSA" => Ed25519KeyPair::generate().map(Pair::Ed),
            _ => panic!("{algorithm} is none of the four"),
        };
        Self {
            kid: kid.to_owned(),
            algorithm,
            pair: pair.expect("a key can be made"),
        }
    }

    /// Returns the public key as a JSON Web Key.
    pub fn jwk(&self) -> Value {
        let mut jwk = json!({ "kid": self.kid, "alg": self.algorithm, "use": "sig" });
        let parameters = match &self.pair {
            Pair::Rsa(pair) => {
                let key = pair.public_key();
                json!({
                    "kty": "RSA",
                    "n": encode(key.modulus().big_endian_without_leading_zero()),
                    "e": encode(key.exponent().big_endian_without_leading_zero()),
                })
            }
            Pair::Ec(pair) => {
                let point = pair.public_key().as_ref();
                json!({
                    "kty": "EC", "crv": "P-256",
                    "x": encode(&point[1..33]), "y": encode(&point[33..]),
                })
            }
            Pair::Ed(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key()) })
            }
        };
        for (name, value) in parameters.as_object().expect("an object") {
            jwk[name] = value.clone();
        }
        jwk
    }

    /// Returns the private key in PEM, as Google's cloud hands it out.
    pub fn private_pem(&self) -> String {
        let Pair::Rsa(pair) = &self.pair else {
            panic!("only asked of RSA keys");
        };
        let der: Pkcs8V1Der<'_> = pair.as_der().expect("it can be encoded");
        let text = STANDARD.encode(der.as_ref());
        format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")
    }

    /// Returns whether a token has this key's signature.
    pub fn has_signed(&self, token: &str) -> bool {
        let (signed, signature) = token.rsplit_once('.').expect("it has three parts");
        let signature = URL_SAFE_NO_PAD.decode(signature).expect("it is Base64");
        let der = self.public_der();
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, der)
            .verify(signed.as_bytes(), &signature)
            .is_ok()
    }

    /// Returns the public key as DER: a confused verifier might use it as a shared secret.
    pub fn public_der(&self) -> Vec<u8> {
        let Pair::Rsa(pair) = &self.pair else {
            panic!("only asked of RSA keys");
        };
        let der: PublicKeyX509Der<'_> = pair.public_key().as_der().expect("it can be encoded");
        der.as_ref().to_vec()
    }

    /// Returns the usual header of this key's tokens.
    pub fn header(&self) -> Value {
        json!({ "alg": self.algorithm, "typ": "JWT", "kid": self.kid })
    }

    /// Signs a token with the usual header.
    pub fn token(&self, claims: &Value) -> String {
        self.token_of(&self.header().to_string(), &claims.to_string())
    }

    /// Signs a token with this header and payload, valid or not.
    pub fn token_of(&self, header: &str, payload: &str) -> String {
        let message = format!("{}.{}", encode(header), encode(payload));
        let signature = encode(self.sign(message.as_bytes()));
        format!("{message}.{signature}")
    }

    /// Signs with the key's own algorithm.
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let padding: &dyn RsaEncoding = match self.algorithm {
                    "PS256" => &RSA_PSS_SHA256,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(padding, &random, message, &mut signature)
                    .expect("it can sign");
                signature
            }
            Pair::Ec(pair) => pair
                .sign(&random, message)
                .expect("it can sign")
                .as_ref()
                .to_vec(),
            Pair::Ed(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }
}

/// Returns the set of public keys that an issuer publishes.
pub fn key_set<'a>(keys: impl IntoIterator<Item = &'a SigningKey>) -> Value {
    let keys: Vec<_> = keys.into_iter().map(SigningKey::jwk).collect();
    json!({ "keys": keys })
}

/// Encodes Base64 in the form of tokens.
pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
