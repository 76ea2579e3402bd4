//! The settings of traces: `[telemetry]`.

use std::collections::BTreeMap;

use figment::value::Dict;
use http::HeaderName;
use serde::Deserialize;
use url::Url;
use weir_storage::secrets::SecretSource;

/// The standard's variables that apply if weir's own settings are absent, and the setting of each. The exporter also
/// reads `OTEL_EXPORTER_OTLP_HEADERS` and `OTEL_RESOURCE_ATTRIBUTES`.
const VARIABLES: [(&str, &str); 3] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "otlp_endpoint"),
    ("OTEL_SERVICE_NAME", "service_name"),
    ("OTEL_TRACES_SAMPLER_ARG", "sample"),
];

/// The settings of traces: `[telemetry]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetrySettings {
    /// Collector URL for OTLP over HTTP without `/v1/traces`, which weir appends; without a URL weir records no traces.
    /// Default: `OTEL_EXPORTER_OTLP_ENDPOINT`, else none.
    pub otlp_endpoint: Option<String>,
    /// Headers that authenticate weir to the collector, each a secret source. Default: `OTEL_EXPORTER_OTLP_HEADERS`.
    pub otlp_headers: BTreeMap<String, SecretSource>,
    /// Recorded share, from 0 to 1, of the traces that begin at weir. Default: `OTEL_TRACES_SAMPLER_ARG`, else 1.
    pub sample: f64,
    /// Service name in traces. Default: `OTEL_SERVICE_NAME`, else `weir`.
    pub service_name: String,
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            otlp_headers: BTreeMap::new(),
            sample: 1.0,
            service_name: "weir".to_owned(),
        }
    }
}

impl TelemetrySettings {
    /// Returns the standard's variables as settings. An empty variable counts as none.
    pub fn standard(variable: impl Fn(&str) -> Option<String>) -> Dict {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let is =
            |name: &str, value: &str| variable(name).is_some_and(|v| v.eq_ignore_ascii_case(value));
        let mut settings = Dict::new();
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return settings;
        }
        for (name, setting) in VARIABLES {
            let Some(value) = variable(name) else {
                continue;
            };
            let value = match (setting, value.parse::<f64>()) {
                ("sample", Ok(share)) => share.into(),
                _ => value.into(),
            };
            settings.insert(setting.to_owned(), value);
        }
        // The sampler applies to traces that begin here; for other traces, the parent's flag always counts.
        let sampler = variable("OTEL_TRACES_SAMPLER").unwrap_or_default();
        if let Some(share) = match sampler.trim_start_matches("parentbased_") {
            "always_off" => Some(0.0),
            "always_on" => Some(1.0),
            _ => None,
        } {
            settings.insert("sample".to_owned(), share.into());
        }
        settings
    }

    /// Returns the faults of the settings.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(endpoint) = &self.otlp_endpoint
            && let Err(why) = check_endpoint(endpoint)
        {
            problems.push(format!("`telemetry.otlp_endpoint` {why}"));
        }
        if !(0.0..=1.0).contains(&self.sample) {
            problems.push(format!(
                "`telemetry.sample` is {}; it must be a share from 0 to 1",
                self.sample
            ));
        }
        if self.service_name.is_empty() {
            problems.push("`telemetry.service_name` is empty".to_owned());
        }
        for name in self.otlp_headers.keys() {
            if HeaderName::try_from(name).is_err() {
                problems.push(format!(
                    "`telemetry.otlp_headers.{name}` is not a valid header name"
                ));
            }
        }
        problems
    }
}

/// Checks the endpoint. No error quotes its text: it may contain a password.
fn check_endpoint(text: &str) -> Result<(), &'static str> {
    let url = Url::parse(text).map_err(|_| "is not a URL, such as http://collector:4318")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds a user name; credentials belong under `telemetry.otlp_headers`");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must end with its path: no query, no fragment");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_checked_and_never_repeated() {
        let problems = |endpoint: &str| {
            let settings = TelemetrySettings {
                otlp_endpoint: Some(endpoint.to_owned()),
                ..TelemetrySettings::default()
            };
            settings.problems().join("\n")
        };
        for good in ["http://collector:4318", "https://otlp.example/otlp/"] {
            assert_eq!(problems(good), "");
        }
        for (bad, why) in [
            ("collector:4318", "must begin with"),
            ("canary", "is not a URL"),
            ("grpc://canary:4317", "must begin with"),
            ("http://canary:secret@host", "otlp_headers"),
            ("http://host/?key=canary", "no query"),
        ] {
            let problems = problems(bad);
            assert!(problems.contains("`telemetry.otlp_endpoint`"), "{problems}");
            assert!(
                problems.contains(why) && !problems.contains("canary"),
                "{problems}"
            );
        }
    }

    #[test]
    fn the_standards_variables_are_taken() {
        let standard = |set: &[(&str, &str)]| {
            let set: BTreeMap<_, _> = set.iter().copied().collect();
            TelemetrySettings::standard(|name| set.get(name).map(|&value| value.to_owned()))
        };
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        let found = standard(&[
            endpoint,
            ("OTEL_SERVICE_NAME", "gateway"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ]);
        assert_eq!(found["otlp_endpoint"].as_str(), Some(endpoint.1));
        assert_eq!(found["service_name"].as_str(), Some("gateway"));
        assert_eq!(found["sample"].to_f64(), Some(0.25));
        let off = standard(&[endpoint, ("OTEL_TRACES_SAMPLER", "parentbased_always_off")]);
        assert_eq!(off["sample"].to_f64(), Some(0.0));
        assert!(standard(&[endpoint, ("OTEL_SDK_DISABLED", "true")]).is_empty());
        assert!(standard(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]).is_empty());
        assert!(standard(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]).is_empty());
    }
}
