//! A summary of this node's metrics since its start, for the console's page: read from the text of
//! [`/metrics`](super::routes), so that both agree.

/// A node's summary since its start.
#[derive(Debug, Default, PartialEq)]
pub struct NodeSummary {
    /// Completed requests to models.
    pub requests: f64,
    /// Server-side failures among them.
    pub failed: f64,
    /// Open holds.
    pub open_holds: f64,
    /// Upper bound of the seconds in which 95 % of streamed responses had begun.
    pub first_token_p95: Option<f64>,
}

impl NodeSummary {
    /// Reads the summary from this text.
    pub fn of(text: &str) -> Self {
        let mut summary = Self::default();
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            // An exemplar may follow the value.
            let line = line.split(" # ").next().unwrap_or_default();
            let Some((series, value)) = line.rsplit_once(' ') else {
                continue;
            };
            let Ok(value) = value.parse::<f64>() else {
                continue;
            };
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            match name {
                "weir_requests_total" if is_of_models(labels) => summary.requests += value,
                "weir_request_failures_total" if is_of_models(labels) => summary.failed += value,
                "weir_ledger_open_holds" => summary.open_holds = value,
                "weir_plugin_first_token_seconds_bucket" => {
                    let bound = label(labels, "le").and_then(|bound| bound.parse().ok());
                    let bound = bound.unwrap_or(f64::INFINITY);
                    match buckets.iter_mut().find(|(found, _)| *found == bound) {
                        Some((_, count)) => *count += value,
                        None => buckets.push((bound, value)),
                    }
                }
                _ => {}
            }
        }
        buckets.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let all = buckets.last().map_or(0.0, |(_, count)| *count);
        let within = buckets.iter().find(|(_, count)| *count >= 0.95 * all);
        summary.first_token_p95 = within.filter(|_| all > 0.0).map(|(bound, _)| *bound);
        summary
    }
}

/// Returns whether requests of this route go to a model.
fn is_of_models(labels: &str) -> bool {
    label(labels, "route").is_some_and(|route| {
        matches!(route, "/chat" | "/code")
            || (route.starts_with("/v1/") && !route.starts_with("/v1/models"))
    })
}

fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let (_, behind) = labels.split_once(&format!("{name}=\""))?;
    behind.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_text() {
        let text = "# TYPE weir_requests counter\n\
                    weir_requests_total{method=\"POST\",route=\"/chat\",status=\"200\"} 7\n\
                    weir_requests_total{method=\"POST\",route=\"/v1/messages\",status=\"503\"} 2\n\
                    weir_requests_total{method=\"GET\",route=\"/console\",status=\"500\"} 70\n\
                    weir_requests_total{method=\"GET\",route=\"/v1/models\",status=\"200\"} 70\n\
                    weir_request_failures_total{route=\"/v1/messages\"} 3\n\
                    weir_request_failures_total{route=\"/console\"} 70\n\
                    weir_ledger_open_holds 3\n\
                    weir_plugin_first_token_seconds_bucket{le=\"0.1\",slot=\"a\"} 90 # {trace_id=\"x\"} 0.07\n\
                    weir_plugin_first_token_seconds_bucket{le=\"0.5\",slot=\"a\"} 94\n\
                    weir_plugin_first_token_seconds_bucket{le=\"+Inf\",slot=\"a\"} 100\n\
                    weir_plugin_first_token_seconds_bucket{le=\"0.5\",slot=\"b\"} 6\n\
                    weir_plugin_first_token_seconds_bucket{le=\"+Inf\",slot=\"b\"} 5\n\
                    # EOF\n";
        let expected = NodeSummary {
            requests: 9.0,
            failed: 3.0,
            open_holds: 3.0,
            first_token_p95: Some(0.5),
        };
        assert_eq!(NodeSummary::of(text), expected);
        assert_eq!(NodeSummary::of("# EOF\n"), NodeSummary::default());
    }
}
