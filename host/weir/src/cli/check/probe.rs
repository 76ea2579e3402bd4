//! `weir check --probe`: connects to all services that a gateway depends on, at the same time, and changes nothing.

use std::time::Duration;

use anyhow::ensure;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use weir_app::PreparedParts;
use weir_app::config::Config;
use weir_catalog::Catalog;
use weir_outgoing::{self as outgoing, Client};
use weir_payments::settings::ProcessorName;
use weir_payments::stripe::{Stripe, StripeTimeouts};
use weir_storage::{Cache, Database};

/// Time limit of each probe.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The name of a service and the result of its probe, a few words in either case.
type Probe<'a> = (String, BoxFuture<'a, Result<String, String>>);

pub(super) async fn run(
    config: &Config,
    prepared: &PreparedParts,
    catalog: &Catalog,
) -> anyhow::Result<()> {
    let http = outgoing::client(config.timeouts.connect())?;
    let mut probes = stores(config);
    probes.extend(issuers(prepared));
    probes.extend(upstreams(catalog, &http));
    probes.extend(collector(config, prepared));
    probes.extend(payments(config, prepared));
    let (names, probes): (Vec<_>, Vec<_>) = probes.into_iter().unzip();
    let probes = probes.into_iter().map(|probe| async {
        let outcome = tokio::time::timeout(TIMEOUT, probe).await;
        outcome.unwrap_or_else(|_| Err(format!("no response within {} s", TIMEOUT.as_secs())))
    });
    let outcomes = join_all(probes).await;
    let mut failed = 0;
    for (name, outcome) in names.iter().zip(outcomes) {
        match outcome {
            Ok(how) => println!("{name}: {how}"),
            Err(why) => {
                failed += 1;
                println!("{name}: FAILED: {why}");
            }
        }
    }
    ensure!(failed == 0, "--probe: unreachable or unsuitable: {failed}");
    Ok(())
}

fn stores(config: &Config) -> Vec<Probe<'_>> {
    let url = config.database_url();
    let name = format!("database {url}");
    let database = async move {
        let reached = Database::probe(&url).await;
        reached.map_err(|error| format!("{error:#}"))
    };
    let mut probes = vec![(name, database.boxed())];
    if let Some(url) = &config.redis_url {
        let cache = async move {
            let reached = Cache::probe(url).await;
            reached.map_err(|error| format!("{error:#}"))?;
            Ok("reached, and accepts writes".to_owned())
        };
        probes.push((format!("cache {url}"), cache.boxed()));
    }
    probes
}

fn issuers(prepared: &PreparedParts) -> Vec<Probe<'_>> {
    let verifiers = &prepared.verifiers;
    let mut probes: Vec<Probe<'_>> = Vec::new();
    for (whose, verifier) in [
        ("web users", &verifiers.identity),
        ("attestations", &verifiers.attestation),
        ("services", &verifiers.api),
    ] {
        // No request verifies tokens at development mode's local issuer.
        let Some(verifier) = verifier.as_ref().filter(|verifier| verifier.is_remote()) else {
            continue;
        };
        let name = format!("issuer of {whose} {}", verifier.issuer());
        let keys = async move {
            let keys = verifier.count_keys().await?;
            Ok(format!("reached; it has {keys} keys"))
        };
        probes.push((name, keys.boxed()));
    }
    for issuer in prepared.sign_in.iter() {
        let name = format!("issuer of people {}", issuer.settings().issuer);
        let keys = async move {
            let keys = issuer.probe().await?;
            Ok(format!("reached; it has {keys} keys"))
        };
        probes.push((name, keys.boxed()));
    }
    let token = async {
        let token = prepared.service_tokens.token().await;
        token.map_err(|error| error.to_string())?;
        Ok("there".to_owned())
    };
    let name = "the token for other services".to_owned();
    probes.push((name, token.boxed()));
    probes
}

fn collector<'a>(config: &'a Config, prepared: &'a PreparedParts) -> Option<Probe<'a>> {
    let exporting = prepared.exporters.traces.as_ref()?;
    let endpoint = config.telemetry.otlp_endpoint.as_deref()?;
    let taken = async move { exporting.probe().await.map(|()| "reached".to_owned()) };
    Some((format!("collector of traces {endpoint}"), taken.boxed()))
}

/// Checks also those of the payment processor's own settings that weir depends on.
fn payments<'a>(config: &'a Config, prepared: &'a PreparedParts) -> Option<Probe<'a>> {
    let settings = &config.payments;
    if settings.processor(config.is_dev()) != ProcessorName::Stripe {
        return None;
    }
    let key = prepared.payment_secrets.secret_key.as_ref()?;
    let asked = async move {
        let stripe = Stripe::new(&settings.api_base, key, StripeTimeouts::default());
        let stripe = stripe.map_err(|error| error.to_string())?;
        let problems = stripe.problems(settings).await;
        let problems = problems.map_err(|error| error.to_string())?;
        match problems.is_empty() {
            true => Ok("reached; its settings fit".to_owned()),
            false => Err(problems.join("; ")),
        }
    };
    let name = format!("payment processor {}", settings.api_base);
    Some((name, asked.boxed()))
}

fn upstreams<'a>(catalog: &'a Catalog, http: &'a Client) -> Vec<Probe<'a>> {
    let upstreams = catalog.upstreams().into_iter();
    let reached = upstreams.filter_map(|(name, upstream)| {
        let base = upstream.base.as_ref()?.to_string();
        let name = format!("provider {name} {base}");
        // The request carries no credential: any response proves that the provider is reachable.
        let request = http.get(base).send();
        let answer = async move {
            match request.await {
                Ok(answer) => Ok(format!("reached; it responds with {}", answer.status())),
                Err(error) => Err(outgoing::root_cause(error)),
            }
        };
        Some((name, answer.boxed()))
    });
    reached.collect()
}
