//! The credentials for a registry, from the files of Docker and Podman.
//!
//! The file is `$REGISTRY_AUTH_FILE`, or `config.json` in `$DOCKER_CONFIG` or `~/.docker`. In the file, the registry's helper in
//! `credHelpers` comes first, then `credsStore`, then `auths`.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use weir_sandbox::printable;
use weir_storage::secrets::Secret;

/// Docker Hub, and its key in these files.
const DOCKER_HUB: (&str, &str) = ("docker.io", "https://index.docker.io/v1/");

/// The user name of helpers for an identity token.
const TOKEN_USER: &str = "<token>";

/// The message of a helper without credentials, on standard output or standard error.
const HELPER_HAS_NONE: &str = "credentials not found";

/// The time limit of a helper, which may ask its user.
const HELPER_WITHIN: Duration = Duration::from_secs(120);

/// The result of a search for credentials.
pub(crate) struct LoginLookup {
    pub(crate) login: Option<Login>,
    /// The searched place, for error messages.
    pub(crate) looked_in: String,
}

pub(crate) enum Login {
    Password {
        user: String,
        password: Secret,
    },
    /// A token that the issuer accepts in place of a password.
    IdentityToken(Secret),
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct DockerConfig {
    auths: BTreeMap<String, Auth>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Auth {
    /// Base64 of `NAME:PASSWORD`.
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperOutput {
    username: String,
    secret: String,
}

pub(crate) async fn find(registry: &str) -> anyhow::Result<LoginLookup> {
    let Some(path) = config_path() else {
        return Ok(LoginLookup {
            login: None,
            looked_in: "no file: neither DOCKER_CONFIG nor HOME is set".to_owned(),
        });
    };
    let shown = path.display().to_string();
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(LoginLookup {
                login: None,
                looked_in: format!("{shown}, which does not exist"),
            });
        }
        Err(error) => return Err(error).with_context(|| format!("reading {shown}")),
    };
    let config: DockerConfig =
        serde_json::from_slice(&text).with_context(|| format!("{shown} cannot be read"))?;
    let keys = keys(registry);
    let helper = keys.iter().find_map(|key| config.cred_helpers.get(key));
    let helper = helper.or(Some(&config.creds_store));
    if let Some(helper) = helper.filter(|helper| !helper.is_empty()) {
        // Docker passes the key of the file to the helper.
        let key = match registry == DOCKER_HUB.0 {
            true => DOCKER_HUB.1,
            false => registry,
        };
        let asked = ask_helper(helper, key).await;
        let login = asked.with_context(|| format!("{shown} names docker-credential-{helper}"))?;
        if login.is_some() {
            return Ok(LoginLookup {
                login,
                looked_in: format!("docker-credential-{helper}, which {shown} names"),
            });
        }
    }
    let auth = keys.iter().find_map(|key| config.auths.get(key));
    let login = auth.map(login_of).transpose();
    let login = login.with_context(|| format!("{shown}: the entry for {registry}"))?;
    Ok(LoginLookup {
        login: login.flatten(),
        looked_in: shown,
    })
}

fn config_path() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(file) = set("REGISTRY_AUTH_FILE") {
        return Some(file.into());
    }
    let folder = match set("DOCKER_CONFIG") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(set("HOME")?).join(".docker"),
    };
    Some(folder.join("config.json"))
}

/// Returns the keys that tools have used for a registry in this file.
fn keys(registry: &str) -> Vec<String> {
    let mut keys = vec![registry.to_owned()];
    for ending in ["", "/", "/v1/", "/v2/"] {
        keys.push(format!("https://{registry}{ending}"));
        keys.push(format!("http://{registry}{ending}"));
    }
    if registry == DOCKER_HUB.0 {
        keys.push(DOCKER_HUB.1.to_owned());
    }
    keys
}

/// Parses an entry. Docker leaves an empty entry if a helper has the credentials.
fn login_of(auth: &Auth) -> anyhow::Result<Option<Login>> {
    if !auth.identitytoken.is_empty() {
        let token = Secret::new(auth.identitytoken.clone());
        return Ok(Some(Login::IdentityToken(token)));
    }
    let (user, password) = match (&*auth.auth, &*auth.username) {
        ("", "") => return Ok(None),
        ("", user) => (user.to_owned(), auth.password.clone()),
        (encoded, _) => {
            let decoded = BASE64.decode(encoded).ok();
            let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
            let pair = decoded.as_deref().and_then(|text| text.split_once(':'));
            let (user, password) = pair.context("`auth` is not the Base64 of NAME:PASSWORD")?;
            (user.to_owned(), password.trim_end_matches('\0').to_owned())
        }
    };
    Ok(Some(Login::Password {
        user,
        password: Secret::new(password),
    }))
}

/// Runs `docker-credential-NAME get`: the registry on standard input, JSON on standard output.
async fn ask_helper(name: &str, registry: &str) -> anyhow::Result<Option<Login>> {
    ensure!(!name.contains('/'), "that is not the name of a program");
    let mut child = Command::new(format!("docker-credential-{name}"))
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("which cannot be started")?;
    if let Some(mut stdin) = child.stdin.take() {
        // A helper that does not read its input reports why.
        let _ = stdin.write_all(registry.as_bytes()).await;
    }
    let output = tokio::time::timeout(HELPER_WITHIN, child.wait_with_output()).await;
    let output = output.context("which does not respond")??;
    if !output.status.success() {
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        let said = String::from_utf8_lossy(&said);
        if said.contains(HELPER_HAS_NONE) {
            return Ok(None);
        }
        bail!("which fails: {}", printable(said.trim(), 300));
    }
    // The output is a secret, even if it is not JSON.
    let Ok(found) = serde_json::from_slice::<HelperOutput>(&output.stdout) else {
        bail!("whose output is not JSON with Username and Secret");
    };
    let secret = Secret::new(found.secret);
    Ok(Some(match found.username == TOKEN_USER {
        true => Login::IdentityToken(secret),
        false => Login::Password {
            user: found.username,
            password: secret,
        },
    }))
}
