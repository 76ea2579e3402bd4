//! `weir check --production`: what of a configuration is for development, or still the example's.
//!
//! All of it would start and serve. What a gateway for others must not lack to start at all, is refused without being
//! asked for, in [`Config::check`] and [`Config::check_mode`].

use std::net::SocketAddr;

use figment::value::{Dict, Value};
use url::{Host, Url};

use crate::app::Prepared;
use crate::catalog::{Catalog, LeftOut};
use crate::config::Config;

/// What is wrong; each sentence names the setting, and what to do. In `sources` is what was written.
pub(super) fn findings(config: &Config, prepared: &Prepared, sources: &Dict) -> Vec<String> {
    let mut findings = Vec::new();
    let mut find = |setting: &str, what: &str| findings.push(format!("`{setting}` {what}"));
    if config.is_dev() {
        find(
            "dev",
            "is not `false`: development mode serves this machine only, and its users pay nothing",
        );
    }
    if config.data_dir.is_relative() {
        find(
            "data_dir",
            "is relative to wherever weir is started: give it a path from the root, such as /var/lib/weir",
        );
    }
    const OWN: &str = "is not set: what it protects would be lost with this node's data folder, and is stolen with it; make \
                       one with `openssl rand -hex 32`, in a file";
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
        if written
            .and_then(|url| Url::parse(url).ok())
            .is_some_and(|url| url.password().is_some())
        {
            find(
                setting,
                "has its password in it: put the URL into a file, and say { file = \"PATH\" }",
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
            "is reached without TLS, so that keys can be read on the way: set `[tls]`, or name what ends TLS in front \
             in `trusted_proxies` or `proxy_protocol`",
        );
    }
    if config.internal_listen.is_none() {
        find(
            "internal_listen",
            "is not set: `/metrics` is open to all who reach `listen`",
        );
    }
    if config.providers.contains_key("demo") {
        find(
            "providers.demo",
            "is there: it answers whatever it is asked, without a model behind it",
        );
    }
    if config.plugins.allow_unsigned == Some(true) {
        find(
            "plugins.allow_unsigned",
            "is `true`: name publishers in `[plugins.publishers]`, and have them sign",
        );
    }
    if let Some(key) = &prepared.payment_secrets.secret_key
        && ["sk_test_", "rk_test_"]
            .iter()
            .any(|test| key.expose().starts_with(test))
    {
        find(
            "payments.secret_key",
            "is a key for tests: nobody would be charged",
        );
    }
    for origin in &config.cors_origins {
        if origin.is_plain() {
            find(
                "cors_origins",
                &format!("has {origin}: whoever is on the way can make such a page say anything"),
            );
        }
    }
    let mut examples = Vec::new();
    find_examples("", &Value::from(sources.clone()), &mut examples);
    for setting in examples {
        find(&setting, "is still the example's");
    }
    findings
}

/// That nothing can be served, and what would bring models.
pub(super) fn no_models(catalog: &Catalog) -> String {
    let missing = catalog.left_out.iter();
    let missing: Vec<_> = missing
        .map(|LeftOut { provider, why, .. }| format!("\n    provider {provider}: {why}"))
        .collect();
    format!(
        "no model can be served: give a provider its credential, or configure `[providers]` and `[models]`{}",
        missing.concat()
    )
}

/// What a gateway on this configuration would not do, which its operator may mean; each sentence names the remedy.
pub(super) fn limits(config: &Config) -> Vec<&'static str> {
    let mut limits = Vec::new();
    if config.identity.web.is_none() {
        limits.push(
            "Nobody can sign in to the console, as `identity.web` names no issuer of users' tokens: an administrator gets in \
             with a one-time link of `weir console`, run on a node.",
        );
    }
    if config.identity.outgoing.is_none() {
        limits.push(
            "Swarms and tasks are off, as executors have no token for the API: set `identity.outgoing`, from where they get \
             one, and `identity.service`, by which the API accepts it.",
        );
    }
    limits
}

/// Notes the settings that name hosts which nobody has.
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

/// Whether it is a name that documents use, by RFC 2606 or as weir's own do.
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
