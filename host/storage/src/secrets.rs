//! Secrets in memory and in files: masked in output, readable only by the owner.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use url::Url;

/// Minimum length of a configured secret, in bytes.
const MIN_CONFIGURED_BYTES: usize = 32;

/// A 256-bit key. Prints masked.
#[derive(Clone)]
pub struct SecretKey {
    bytes: [u8; 32],
    /// An HMAC under the key, before any message: two of the five hashed blocks of an API key's HMAC.
    mac: Hmac<Sha256>,
}

impl SecretKey {
    /// A key with this value, e.g. for a test.
    pub fn new(bytes: [u8; 32]) -> Self {
        let mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&bytes)
            .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
        Self { bytes, mac }
    }

    /// The key's bytes.
    pub fn expose(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// Derives the key from a configured secret; `what` names it in errors, such as `the pepper of version 1`.
    pub fn configured(source: &SecretSource, what: &str) -> anyhow::Result<Self> {
        let text = source
            .read(environment)
            .map_err(|problem| anyhow!("{what}: {problem}"))?;
        ensure!(
            text.expose().len() >= MIN_CONFIGURED_BYTES,
            "{what} has less than {MIN_CONFIGURED_BYTES} bytes"
        );
        let bytes = Sha256::digest(text.expose().as_bytes());
        Ok(Self::new(bytes.into()))
    }

    /// An HMAC-SHA256 under the key, begun with a label for its purpose.
    pub fn mac(&self, label: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(label);
        mac
    }

    /// A fingerprint that tells the key from others without revealing it.
    pub fn fingerprint(&self, label: &[u8]) -> Vec<u8> {
        self.mac(label).finalize().into_bytes()[..16].to_vec()
    }

    /// Reads a key from its file, or generates one from the system's randomness if there is no file.
    ///
    /// The file has mode 0600. A file that others can read is refused, since its key may have leaked. Concurrent
    /// processes that create the file all get the key of the first.
    pub fn load_or_create(path: &Path) -> anyhow::Result<Self> {
        match std::fs::symlink_metadata(path) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                create_key_file(path).with_context(|| format!("creating {}", path.display()))?
            }
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        }
        let mode = std::fs::metadata(path)?.permissions().mode();
        if mode & 0o077 != 0 {
            bail!(
                "{} can be read by others (mode {:o}); run: chmod 600 {0}",
                path.display(),
                mode & 0o777
            );
        }
        let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        match bytes.try_into() {
            Ok(bytes) => Ok(Self::new(bytes)),
            Err(_) => bail!("{} does not hold a key of 32 bytes", path.display()),
        }
    }
}

/// Writes a new key's file, unless another process was faster.
///
/// The key is written to a temporary file and then linked in its place: a link, unlike a rename, never replaces a
/// file, and a crash leaves a stray file rather than half a key.
fn create_key_file(path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().context("a key lies in a folder")?;
    create_private_folder(folder)?;
    let beside = path.with_extension(format!("{}.tmp", uuid::Uuid::now_v7().simple()));
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)?;
    let linked = file
        .write_all(&random_bytes::<32>())
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::hard_link(&beside, path));
    std::fs::remove_file(&beside)?;
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.into()),
        // The folder is synced, too: the data under the key must not outlast the key.
        _ => Ok(std::fs::File::open(folder)?.sync_all()?),
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(****)")
    }
}

/// A text that must not be shown, such as an upstream's credential. Prints masked.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(****)")
    }
}

/// The source of a secret, such as a credential: `{ env = "NAME" }` or `{ file = "PATH" }`.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "SourceTable")]
pub enum SecretSource {
    /// An environment variable.
    Env(String),
    /// A file; white space around its content is dropped.
    File(PathBuf),
}

/// Accepts any value: no error then quotes a secret that was written in the place of its source.
#[derive(Deserialize)]
#[serde(transparent)]
struct SourceTable(serde_json::Value);

impl TryFrom<SourceTable> for SecretSource {
    type Error = &'static str;

    fn try_from(table: SourceTable) -> Result<Self, Self::Error> {
        let table = table.0.as_object().filter(|table| table.len() == 1);
        let text = |name| table?.get(name)?.as_str();
        match (text("env"), text("file")) {
            (Some(name), _) => Ok(Self::Env(name.to_owned())),
            (_, Some(path)) => Ok(Self::File(path.into())),
            _ => Err(
                "write the secret's source here, not the secret: { env = \"NAME\" } or { file = \"PATH\" }",
            ),
        }
    }
}

impl SecretSource {
    /// Reads the credential; `environment` looks up environment variables.
    ///
    /// # Errors
    ///
    /// Returns a short reason if the secret is not set, unreadable or empty. The error does not repeat a malformed
    /// name: it may be the secret, written in the place of its name.
    pub fn read(&self, environment: impl Fn(&str) -> Option<String>) -> Result<Secret, String> {
        let text = match self {
            Self::Env(name) => environment(name).ok_or_else(|| {
                if is_variable(name) {
                    format!("the environment variable {name} is not set")
                } else {
                    "the environment variable is not set; `env` takes its name, in capitals as a rule, which is \
                     not shown here since it may be the secret"
                        .to_owned()
                }
            })?,
            Self::File(path) => std::fs::read_to_string(path).map_err(|error| {
                if is_path(path) {
                    format!("the file {} cannot be read: {error}", path.display())
                } else {
                    format!(
                        "the file cannot be read: {error}; `file` takes its path, which is not shown here since \
                         it may be the secret"
                    )
                }
            })?,
        };
        match text.trim() {
            "" => Err(match self {
                Self::File(path) if is_path(path) => {
                    format!("the file {} is empty", path.display())
                }
                Self::Env(name) if is_variable(name) => {
                    format!("the environment variable {name} is empty")
                }
                _ => "the value is empty".to_owned(),
            }),
            text => Ok(Secret::new(text.to_owned())),
        }
    }
}

/// Returns whether a text looks like the name of an environment variable and not like a secret: keys have lower-case
/// letters.
fn is_variable(name: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    name.bytes().all(is_legal) && name.contains(|letter: char| letter.is_ascii_uppercase())
}

/// Returns whether a path looks like a path and not like a secret.
fn is_path(path: &Path) -> bool {
    path.is_absolute()
        || path.starts_with(".")
        || path.starts_with("..")
        || path.extension().is_some()
}

/// Returns an environment variable of this process, if it is set and valid Unicode.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A URL whose password must not be shown, given directly or as a [`SecretSource`]. Prints with the password masked.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "SourceTable")]
pub struct SecretUrl(String);

impl TryFrom<SourceTable> for SecretUrl {
    type Error = String;

    fn try_from(written: SourceTable) -> Result<Self, Self::Error> {
        if let serde_json::Value::String(url) = written.0 {
            return Ok(Self(url));
        }
        let source = SecretSource::try_from(written)
            .map_err(|_| "give a URL, or its source: { env = \"NAME\" } or { file = \"PATH\" }")?;
        Ok(Self(source.read(environment)?.0))
    }
}

impl SecretUrl {
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the scheme without the colon; empty if there is none.
    pub fn scheme(&self) -> &str {
        self.0.split_once(':').map_or("", |(scheme, _)| scheme)
    }

    pub fn has_password(&self) -> bool {
        self.parse()
            .is_some_and(|(url, _)| url.password().is_some())
    }

    /// Returns one URL per host, in order: clients of stores know URLs with several hosts, and the URL standard does not.
    pub fn one_per_host(&self) -> Vec<Self> {
        let Some((before, hosts, after)) = split_hosts(&self.0) else {
            return vec![self.clone()];
        };
        hosts
            .split(',')
            .map(|host| Self(format!("{before}{host}{after}")))
            .collect()
    }

    /// Parses the URL, with its first host if there are several, and returns the text of the hosts.
    fn parse(&self) -> Option<(Url, Option<&str>)> {
        let hosts = split_hosts(&self.0)
            .map(|(_, hosts, _)| hosts)
            .filter(|hosts| hosts.contains(','));
        let first = self.one_per_host().into_iter().next()?;
        Some((Url::parse(&first.0).ok()?, hosts))
    }
}

/// Splits a URL into the parts before, in and behind its hosts; `None` if it has no place for them.
fn split_hosts(url: &str) -> Option<(&str, &str, &str)> {
    let start = url.find("://")? + "://".len();
    let end = url[start..]
        .find(['/', '?', '#'])
        .map_or(url.len(), |length| start + length);
    let start = url[start..end]
        .rfind('@')
        .map_or(start, |at| start + at + 1);
    Some((&url[..start], &url[start..end], &url[end..]))
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((mut url, hosts)) = self.parse() else {
            // A malformed URL cannot be masked in part.
            return write!(formatter, "{}:****", self.scheme());
        };
        if url.password().is_some() {
            // Only a URL without a host refuses, and such a URL has no password.
            let _ = url.set_password(Some("****"));
        }
        let names: Vec<_> = url.query_pairs().map(|(name, _)| name + "=…").collect();
        let query = url.query().map(|_| format!("?{}", names.join("&")));
        url.set_query(None);
        let url = url.to_string();
        match (hosts, split_hosts(&url)) {
            (Some(hosts), Some((before, _, after))) => {
                write!(formatter, "{before}{hosts}{after}")?;
            }
            _ => formatter.write_str(&url)?,
        }
        formatter.write_str(&query.unwrap_or_default())
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SecretUrl({self})")
    }
}

/// Creates a folder that only its owner can enter, if it is absent.
pub fn create_private_folder(path: &Path) -> anyhow::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("creating the folder {}", path.display()))
}

/// Returns bytes from the system's randomness.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system's randomness is there from boot on");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_print_masked() {
        assert_eq!(format!("{:?}", Secret::new("sk-1".into())), "Secret(****)");
        assert_eq!(format!("{:?}", SecretKey::new([7; 32])), "Key(****)");
    }

    #[test]
    fn a_secret_in_the_place_of_its_name_is_not_repeated() {
        let why = |source: SecretSource| source.read(|_| None).expect_err("there is none");
        let env = |name: &str| why(SecretSource::Env(name.to_owned()));
        let file = |path: &str| why(SecretSource::File(path.into()));
        assert!(env("WEIR_PEPPER_2").contains("WEIR_PEPPER_2 is not set"));
        for shown in ["/none/key", "./none/key", "../none", "none/key.txt"] {
            assert!(file(shown).contains(shown));
        }
        let hex = "0123456789abcdef".repeat(4);
        for secret in [&hex, "sk-proj-ABC123", "Zm9vYmFyYmF6cXV4", "12345678"] {
            assert!(!env(secret).contains(secret) && !file(secret).contains(secret));
        }
    }

    #[test]
    fn all_who_make_a_key_at_once_get_the_same() {
        let folder = std::env::temp_dir().join(format!("weir-keys-{}", uuid::Uuid::now_v7()));
        create_private_folder(&folder).expect("a folder can be made");
        for round in 0..50 {
            let path = folder.join(format!("key-{round}"));
            // A dead process's temporary file does not get in the way.
            std::fs::write(path.with_extension("0.tmp"), "").expect("the folder can be written");
            let barrier = std::sync::Barrier::new(16);
            let keys: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..16)
                    .map(|_| {
                        scope.spawn(|| {
                            barrier.wait();
                            *SecretKey::load_or_create(&path).expect("a key").expose()
                        })
                    })
                    .collect();
                let keys = threads.into_iter().map(|thread| thread.join());
                keys.map(|key| key.expect("no panic")).collect()
            });
            assert!(keys.iter().all(|key| *key == keys[0]));
            assert_eq!(
                SecretKey::load_or_create(&path).expect("a key").expose(),
                &keys[0]
            );
        }
        let stray = std::fs::read_dir(&folder).expect("a folder").count() - 2 * 50;
        assert_eq!(stray, 0, "temporary files are left");
        std::fs::remove_dir_all(&folder).expect("the folder can be removed");
    }

    #[test]
    fn urls_print_without_their_secrets() {
        for (url, shown) in [
            ("sqlite:.weir/weir.db", "sqlite:.weir/weir.db"),
            ("redis://cache:6379/0", "redis://cache:6379/0"),
            ("redis://:s3cret@cache", "redis://:****@cache"),
            (
                "postgres://weir:s3%40ret@db:5432/weir",
                "postgres://weir:****@db:5432/weir",
            ),
            (
                "postgres://db/weir?user=a&password=s3cret",
                "postgres://db/weir?user=…&password=…",
            ),
            ("postgres://weir:s3cret@[/weir", "postgres:****"),
            (
                "postgres://weir:s3cret@a:1,[::1]:2,c/weir?sslmode=require",
                "postgres://weir:****@a:1,[::1]:2,c/weir?sslmode=…",
            ),
            (
                "postgres://a,b:5433/weir?password=s3cret",
                "postgres://a,b:5433/weir?password=…",
            ),
            ("s3cret", ":****"),
        ] {
            let url = SecretUrl::new(url);
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), format!("SecretUrl({shown})"));
        }
    }
}
