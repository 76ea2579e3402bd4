//! The settings of the log export: `[log_export]`.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use http::HeaderName;
use serde::Deserialize;
use url::Url;
use weir_storage::secrets::SecretSource;
use weir_upstream::credential::settings::CredentialSettings;

/// Maximum rows in a batch, and in the queue.
pub(super) const MAX_ROWS: u32 = 8_192;

/// Longest age of a batch: an hour.
const MAX_SECONDS: u32 = 3_600;

/// The export of the facts of requests.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogExportSettings {
    /// Destination of each request's facts: `s3://BUCKET/PREFIX` for JSON lines at S3-compatible storage, or ClickHouse's
    /// HTTP address. Default: none.
    pub url: Option<String>,
    /// Address of the storage. Default: AWS's in the credential's region.
    pub endpoint: Option<String>,
    /// Credential of the storage, such as `{ aws = { region = "eu-central-1" } }`, with keys as for providers. Default: none.
    pub credential: Option<CredentialSettings>,
    /// ClickHouse's table; fields without a column are ignored. Default: `weir_requests`.
    pub table: String,
    /// Headers for ClickHouse, such as `X-ClickHouse-Key`, each a secret source. Default: none.
    pub headers: BTreeMap<String, SecretSource>,
    /// Requests in a batch, at most 8,192. Default: 1,000.
    pub batch_rows: NonZeroU32,
    /// Seconds that a batch waits for more requests, at most 3,600. Default: 10.
    pub batch_seconds: NonZeroU32,
}

impl Default for LogExportSettings {
    fn default() -> Self {
        let number = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        Self {
            url: None,
            endpoint: None,
            credential: None,
            table: "weir_requests".to_owned(),
            headers: BTreeMap::new(),
            batch_rows: number(1_000),
            batch_seconds: number(10),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// Objects in a bucket.
    S3 {
        bucket: String,
        /// Without a slash at the end; may be empty.
        prefix: String,
    },
    /// A table at this address.
    ClickHouse(Url),
}

impl LogExportSettings {
    /// Returns the faults of the settings. No fault quotes a URL, which may contain a password.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut note = |name: &str, why: &str| problems.push(format!("`log_export.{name}` {why}"));
        match self.destination() {
            Err(why) => note("url", why),
            Ok(None) => {
                if self.endpoint.is_some() || self.credential.is_some() || !self.headers.is_empty()
                {
                    note("url", "is missing");
                }
            }
            Ok(Some(Destination::S3 { .. })) => {
                if !matches!(self.credential, Some(CredentialSettings::Aws(_))) {
                    note("credential", "must be { aws = { … } } for s3://");
                }
                if !self.headers.is_empty() {
                    note("headers", "are for ClickHouse");
                }
            }
            Ok(Some(Destination::ClickHouse(_))) => {
                for (name, is_set) in [
                    ("credential", self.credential.is_some()),
                    ("endpoint", self.endpoint.is_some()),
                ] {
                    if is_set {
                        note(name, "is for s3://");
                    }
                }
            }
        }
        if let Some(endpoint) = &self.endpoint
            && let Err(why) = check_endpoint(endpoint)
        {
            note("endpoint", why);
        }
        if !is_table(&self.table) {
            note(
                "table",
                "must be TABLE or DATABASE.TABLE, of letters, digits and `_`",
            );
        }
        for name in self.headers.keys() {
            if HeaderName::try_from(name).is_err() {
                note(&format!("headers.{name}"), "is not a valid header name");
            }
        }
        for (name, value, most) in [
            ("batch_rows", self.batch_rows, MAX_ROWS),
            ("batch_seconds", self.batch_seconds, MAX_SECONDS),
        ] {
            if value.get() > most {
                note(name, &format!("is above {most}"));
            }
        }
        problems
    }

    /// Returns the destination, if there is one.
    pub(super) fn destination(&self) -> Result<Option<Destination>, &'static str> {
        let Some(text) = &self.url else {
            return Ok(None);
        };
        if let Some(path) = text.strip_prefix("s3://") {
            let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
            let is_bucket = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
            if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(is_bucket) {
                return Err("has no valid name of a bucket after s3://");
            }
            // These characters are the same in a signature and on the wire.
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte);
            if !prefix.bytes().all(is_plain) || prefix.split('/').any(|part| part == "..") {
                return Err("may have only letters, digits and - . _ / in its prefix");
            }
            return Ok(Some(Destination::S3 {
                bucket: bucket.to_owned(),
                prefix: prefix.trim_matches('/').to_owned(),
            }));
        }
        let url = Url::parse(text).map_err(|_| "is not a URL, such as http://clickhouse:8123")?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("must begin with s3://, https:// or http://");
        }
        let is_credential = |name: &str| matches!(name, "user" | "password");
        if !url.username().is_empty()
            || url.password().is_some()
            || url.query_pairs().any(|(name, _)| is_credential(&name))
        {
            return Err("holds a user name; credentials belong under `log_export.headers`");
        }
        if url.fragment().is_some() {
            return Err("has a fragment");
        }
        Ok(Some(Destination::ClickHouse(url)))
    }
}

fn check_endpoint(text: &str) -> Result<(), &'static str> {
    let url = Url::parse(text).map_err(|_| "is not a URL, such as https://storage:9000")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with https:// or http://");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds a user name; keys belong under `log_export.credential`");
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err("must have no path");
    }
    Ok(())
}

fn is_table(name: &str) -> bool {
    let is_identifier = |part: &str| {
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        !part.is_empty() && part.bytes().all(is_legal) && !part.as_bytes()[0].is_ascii_digit()
    };
    name.split('.').count() <= 2 && name.split('.').all(is_identifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(url: &str) -> Result<Option<Destination>, &'static str> {
        let settings = LogExportSettings {
            url: Some(url.to_owned()),
            ..LogExportSettings::default()
        };
        settings.destination()
    }

    #[test]
    fn a_bucket_is_read_with_its_prefix() {
        let s3 = |bucket: &str, prefix: &str| {
            Ok(Some(Destination::S3 {
                bucket: bucket.to_owned(),
                prefix: prefix.to_owned(),
            }))
        };
        assert_eq!(destination("s3://facts"), s3("facts", ""));
        assert_eq!(destination("s3://facts/"), s3("facts", ""));
        assert_eq!(destination("s3://my.facts/a/b-1/"), s3("my.facts", "a/b-1"));
        for bad in [
            "s3://",
            "s3://ab",
            "s3://Facts",
            "s3://facts/a b",
            "s3://facts/../x",
            "s3://facts/%2e",
        ] {
            assert!(destination(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_table_is_one_or_two_identifiers() {
        for good in ["weir_requests", "logs.requests", "_a1"] {
            assert!(is_table(good), "{good}");
        }
        for bad in ["", "a.b.c", "a.", "1a", "a b", "a;DROP TABLE b", "`a`"] {
            assert!(!is_table(bad), "{bad:?}");
        }
    }
}
