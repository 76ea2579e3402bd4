//! `weir check --production`: finds development and example settings in a configuration.
//!
//! A gateway would start with all of these settings. [`Config::check`] and [`Config::check_mode`] reject the settings
//! with which a gateway must not start at all, in every run of `weir check`.

use std::net::SocketAddr;
use std::path::Path;

use figment::value::{Dict, Value};
use url::{Host, Url};
use weir_app::PreparedParts;
use weir_app::config::Config;
use weir_catalog::{Catalog, OmittedProvider};
use weir_storage::secrets::SecretUrl;

/// Returns the problems; each sentence names the setting and the remedy. `sources` is the configuration as written.
pub(super) fn findings(config: &Config, prepared: &PreparedParts, sources: &Dict) -> Vec<String> {
    let mut findings = Vec::new();
    let mut find = |setting: &str, what: &str| findings.push(format!("`{setting}` {what}"));
    if config.is_dev() {
        find(
            "dev",
            "is not `false`: development mode serves only this machine, and its users pay nothing",
        );
    }
    let data_dir = sources.get("data_dir").and_then(Value::as_str);
    if !data_dir.is_some_and(|folder| Path::new(folder).is_absolute()) {
        find(
            "data_dir",
            "is not an absolute path: set one, such as /var/lib/weir",
        );
    }
    const OWN: &str = "is not set: weir keeps a generated key in the node's data folder, so losing the folder loses the data and \
     stealing it exposes the data; generate a key with `openssl rand -hex 32` into a file";
    for (setting, is_set) in [
        ("api_key_peppers", !config.api_key_peppers.is_empty()),
        ("sealing_keys", !config.sealing_keys.is_empty()),
        ("webhook_key", config.webhook_key.is_some()),
    ] {
        if !is_set {
            find(setting, OWN);
        }
    }
    for setting in ["database_url", "redis_url"] {
        let written = sources.get(setting).and_then(Value::as_str);
        if written.is_some_and(|url| SecretUrl::new(url).has_password()) {
            find(
                setting,
                "contains a password: put the URL into a file, and set { file = \"PATH\" }",
            );
        }
    }
    let is_remote = |address: SocketAddr| !address.ip().is_loopback();
    let listens = config.listen.resolve().unwrap_or_default();
    if listens.into_iter().any(is_remote)
        && config.tls.is_none()
        && config.trusted_proxies.is_empty()
        && config.proxy_protocol.is_empty()
    {
        find(
            "listen",
            "accepts connections without TLS, so the network can read keys: set `[tls]`, or name the proxy that \
             terminates TLS in `trusted_proxies` or `proxy_protocol`",
        );
    }
    if config.internal_listen.is_none() && config.metrics_token_file.is_none() {
        find(
            "internal_listen",
            "is not set, and `metrics_token_file` is not either: no other machine can read `/metrics`",
        );
    }
    if config.providers.contains_key("demo") {
        find(
            "providers.demo",
            "is configured: it answers every request without a model",
        );
    }
    if config.plugins.allow_unsigned == Some(true) {
        find(
            "plugins.allow_unsigned",
            "is `true`: name publishers in `[plugins.publishers]`, and install plugins that they signed",
        );
    }
    if let Some(key) = &prepared.payment_secrets.secret_key
        && ["sk_test_", "rk_test_"]
            .iter()
            .any(|test| key.expose().starts_with(test))
    {
        find(
            "payments.secret_key",
            "is a test key: the processor would charge nobody",
        );
    }
    for origin in &config.cors_origins {
        if origin.is_plain() {
            find(
                "cors_origins",
                &format!("has {origin}: the network can change such a page"),
            );
        }
    }
    let mut examples = Vec::new();
    find_examples("", &Value::from(sources.clone()), &mut examples);
    for setting in examples {
        find(&setting, "is still the example value");
    }
    findings
}

/// Returns the error for an empty catalog, with the reason for each provider that was left out.
pub(super) fn no_models(catalog: &Catalog) -> String {
    let missing = catalog.left_out.iter();
    let missing: Vec<_> = missing
        .map(|OmittedProvider { provider, why, .. }| format!("\n    provider {provider}: {why}"))
        .collect();
    format!(
        "no model can be served: set a provider's credential, or configure `[providers]` and `[models]`{}",
        missing.concat()
    )
}

/// Returns the features that this configuration leaves off, perhaps on purpose; each sentence names the remedy.
pub(super) fn limits(config: &Config) -> Vec<&'static str> {
    let mut limits = Vec::new();
    if config.identity.web.is_none() && config.identity.sign_in.is_empty() {
        limits.push(
            "Users cannot sign in to the console, because neither `identity.sign_in` nor `identity.web` names an issuer: an administrator \
         signs in with a one-time link from `weir console`, run on a node.",
        );
    }
    limits
}

/// Collects the settings with example host names.
fn find_examples(name: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(_, text) => {
            let url = Url::parse(text).ok();
            if let Some(Host::Domain(host)) = url.as_ref().and_then(Url::host)
                && is_example(host)
            {
                found.push(name.to_owned());
            }
        }
        Value::Dict(_, table) => {
            for (key, value) in table {
                let dot = if name.is_empty() { "" } else { "." };
                find_examples(&format!("{name}{dot}{key}"), value, found);
            }
        }
        Value::Array(_, items) => {
            for (index, value) in items.iter().enumerate() {
                find_examples(&format!("{name}[{index}]"), value, found);
            }
        }
        _ => {}
    }
}

/// Returns whether a host name is an example name, from RFC 2606 or from weir's own documents.
fn is_example(host: &str) -> bool {
    [
        "example",
        "example.com",
        "example.net",
        "example.org",
        "your-company.com",
    ]
    .iter()
    .any(|name| {
        host.strip_suffix(name)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}
