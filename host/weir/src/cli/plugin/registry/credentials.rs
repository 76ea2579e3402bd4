//! A registry's credentials, from where Docker and Podman keep them.
//!
//! `$REGISTRY_AUTH_FILE`, or else `config.json` in `$DOCKER_CONFIG` or `~/.docker`: the helper that `credHelpers` has for the
//! registry, or else `credsStore`, or else what `auths` says.

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

/// What Docker Hub is called in these files.
const DOCKER_HUB: (&str, &str) = ("docker.io", "https://index.docker.io/v1/");

/// The name by which helpers say that what they have is no password.
const TOKEN_USER: &str = "<token>";

/// What a helper says where it has nothing, on either output.
const HELPER_HAS_NONE: &str = "credentials not found";

/// How long a helper may take, which may ask its user.
const HELPER_WITHIN: Duration = Duration::from_secs(120);

/// What was found.
pub(super) struct LoginLookup {
    pub(super) login: Option<Login>,
    /// Where it was looked for, in words for whom it is missing.
    pub(super) looked_in: String,
}

pub(super) enum Login {
    Password {
        user: String,
        password: Secret,
    },
    /// What a token is given for, in place of a password.
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
    /// Base64 of a user's name, a colon and a password.
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    username: String,
    secret: String,
}

/// Looks for those of a registry.
pub(super) async fn find(registry: &str) -> anyhow::Result<LoginLookup> {
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
                looked_in: format!("{shown}, which is not there"),
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
        // Docker hands over the key that it would look for in the file.
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

/// What a registry may be called in the file, by what wrote it and when.
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

/// What an entry says; nothing where it is empty, as Docker leaves it when a helper has the rest.
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
            let (user, password) = pair.context("`auth` is no Base64 of NAME:PASSWORD")?;
            (user.to_owned(), password.trim_end_matches('\0').to_owned())
        }
    };
    Ok(Some(Login::Password {
        user,
        password: Secret::new(password),
    }))
}

/// Asks `docker-credential-NAME get`, as Docker does: the registry on standard input, JSON on standard output.
async fn ask_helper(name: &str, registry: &str) -> anyhow::Result<Option<Login>> {
    ensure!(!name.contains('/'), "that is no program's name");
    let mut child = Command::new(format!("docker-credential-{name}"))
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("which cannot be started")?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read it says why it does not.
        let _ = stdin.write_all(registry.as_bytes()).await;
    }
    let output = tokio::time::timeout(HELPER_WITHIN, child.wait_with_output()).await;
    let output = output.context("which does not answer")??;
    if !output.status.success() {
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        let said = String::from_utf8_lossy(&said);
        if said.contains(HELPER_HAS_NONE) {
            return Ok(None);
        }
        bail!("which fails: {}", printable(said.trim(), 300));
    }
    // What it says is a secret, also where it is no JSON.
    let Ok(answer) = serde_json::from_slice::<HelperAnswer>(&output.stdout) else {
        bail!("whose answer is no JSON with Username and Secret");
    };
    let secret = Secret::new(answer.secret);
    Ok(Some(match answer.username == TOKEN_USER {
        true => Login::IdentityToken(secret),
        false => Login::Password {
            user: answer.username,
            password: secret,
        },
    }))
}
