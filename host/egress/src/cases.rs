//! Cases: files with URLs and the guard's expected decisions. The guard is the real one; each case scripts only names
//! and servers. `tests/egress/README.md` describes the format.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use url::Url;
use weir_storage::secrets::Secret;

use crate::guard::walk;
use crate::origin::{Address, UrlOrigin};
use crate::policy::{EgressPolicy, METHODS};
use crate::refusal::{EgressRefusal, EgressStage, Rule};
use crate::request::{Credential, EgressRequest};
use crate::target::EgressTarget;
use crate::transport::{
    Transport, TransportFailure, TransportLimits, TransportRequest, TransportResponse,
};

/// A line of a file of cases.
#[derive(Debug, Deserialize)]
pub struct Case {
    /// The case's name.
    pub id: String,
    url: String,
    #[serde(default)]
    tool: CasePolicy,
    verdict: CaseVerdict,
    stage: Option<String>,
    #[serde(default)]
    dns: HashMap<String, Vec<String>>,
    #[serde(default)]
    dns_seq: HashMap<String, Vec<Vec<String>>>,
    #[serde(default)]
    hops: Vec<String>,
    connect: Option<SocketAddr>,
    #[serde(default)]
    calls: usize,
    second_verdict: Option<SecondVerdict>,
    #[serde(default)]
    strip_auth: bool,
}

/// The policy that a case uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CasePolicy {
    #[default]
    Http,
    Webhook,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CaseVerdict {
    Allow,
    Block,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SecondVerdict {
    Allow,
    Block,
    BlockOrSamePeer,
}

/// A line that is not a valid case.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct InvalidCase {
    /// The line number, from 1.
    pub line: usize,
    why: serde_json::Error,
}

/// A difference between a case's expected decision and the guard's.
#[derive(Debug)]
pub struct Disagreement {
    /// The decision in the file.
    pub expected: String,
    /// The guard's decision.
    pub found: String,
}

/// Reads a case from each line that is not blank.
///
/// # Errors
///
/// Fails with the first invalid line.
pub fn read(file: &[u8]) -> Result<Vec<Case>, InvalidCase> {
    let lines = file.split(|&byte| byte == b'\n').zip(1..);
    let lines = lines.filter(|(text, _)| !text.trim_ascii().is_empty());
    let cases = lines.map(|(text, line)| case(text).map_err(|why| InvalidCase { line, why }));
    cases.collect()
}

/// A null field counts as absent.
fn case(text: &[u8]) -> serde_json::Result<Case> {
    let mut fields: serde_json::Map<String, Value> = serde_json::from_slice(text)?;
    fields.retain(|_, value| !value.is_null());
    serde_json::from_value(fields.into())
}

impl Case {
    /// Runs the case against the guard, and compares the results. Without a policy, the policy of the case's `tool`
    /// applies.
    pub async fn disagreement(&self, policy: Option<&EgressPolicy>) -> Option<Disagreement> {
        let own = || match self.tool {
            CasePolicy::Http => EgressPolicy::http(),
            CasePolicy::Webhook => EgressPolicy::webhook(),
        };
        let script = Script::new(self, policy.cloned().unwrap_or_else(own));
        let first = script.call().await;
        let differs = |expected: String, found: &CaseOutcome| {
            let found = found.to_string();
            Some(Disagreement { expected, found })
        };
        let stage_differs = self
            .stage
            .as_ref()
            .is_some_and(|stage| stage != first.stage);
        if first.verdict() != self.verdict || stage_differs {
            return differs(self.expected(), &first);
        }
        if first.refusal.is_none() {
            let went_to = |peer: &SocketAddr| first.sent.iter().any(|sent| sent.peer == *peer);
            if let Some(connect) = self.connect.filter(|connect| !went_to(connect)) {
                return differs(format!("a connection to {connect}"), &first);
            }
            if self.strip_auth && first.sent.iter().skip(1).any(|sent| sent.has_credential) {
                return differs("a redirect without the credential".into(), &first);
            }
        }
        let expected = self.second_verdict?;
        let mut last = script.call().await;
        for _ in 2..self.calls {
            last = script.call().await;
        }
        let same_peer = last.sent.iter().all(|sent| first.sent.contains(sent));
        let agrees = match (expected, last.verdict()) {
            (SecondVerdict::Allow, verdict) => verdict == CaseVerdict::Allow,
            (SecondVerdict::Block, verdict) => verdict == CaseVerdict::Block,
            (SecondVerdict::BlockOrSamePeer, CaseVerdict::Allow) => same_peer,
            (SecondVerdict::BlockOrSamePeer, CaseVerdict::Block) => true,
        };
        match agrees {
            true => None,
            false => differs(format!("{expected:?} for a later call"), &last),
        }
    }

    fn expected(&self) -> String {
        let verdict = match self.verdict {
            CaseVerdict::Allow => "allow",
            CaseVerdict::Block => "block",
        };
        match &self.stage {
            Some(stage) => format!("{verdict} at {stage}"),
            None => verdict.to_owned(),
        }
    }

    /// The request of the case, with a credential for the origin of its URL if the case has one.
    fn request(&self, method: Method) -> EgressRequest {
        let origin = Url::parse(&self.url)
            .ok()
            .and_then(|url| UrlOrigin::of(&url));
        let credential = origin.map(|origin| Credential {
            name: "case".into(),
            value: Secret::new("credential".into()),
            origin,
            methods: METHODS.to_vec(),
            path_prefix: "/".into(),
            header: header::AUTHORIZATION,
        });
        EgressRequest {
            credential,
            ..EgressRequest::new(method, self.url.as_str())
        }
    }
}

/// The guard's decision for one call.
struct CaseOutcome {
    refusal: Option<EgressRefusal>,
    /// The stage that decided.
    stage: &'static str,
    sent: Vec<SentMessage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SentMessage {
    peer: SocketAddr,
    has_credential: bool,
}

impl CaseOutcome {
    fn verdict(&self) -> CaseVerdict {
        match self.refusal {
            None => CaseVerdict::Allow,
            Some(_) => CaseVerdict::Block,
        }
    }
}

impl fmt::Display for CaseOutcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.refusal {
            Some(refusal) => write!(formatter, "block at {}: {}", self.stage, refusal.rule)?,
            None => write!(formatter, "allow at {}", self.stage)?,
        }
        for SentMessage {
            peer,
            has_credential,
        } in &self.sent
        {
            let with = if *has_credential { "with" } else { "without" };
            write!(formatter, "; sent to {peer} {with} a credential")?;
        }
        Ok(())
    }
}

/// The names and servers of a case.
struct Script<'a> {
    case: &'a Case,
    policy: EgressPolicy,
    state: Mutex<ScriptState>,
}

#[derive(Default)]
struct ScriptState {
    /// Look-ups of each name, over all calls.
    asked: HashMap<String, usize>,
    /// The messages of the current call.
    sent: Vec<SentMessage>,
}

impl<'a> Script<'a> {
    fn new(case: &'a Case, policy: EgressPolicy) -> Self {
        Self {
            case,
            policy,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, ScriptState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call(&self) -> CaseOutcome {
        self.state().sent.clear();
        let agent = HeaderValue::from_static("weir");
        let method = self.policy.methods.first().cloned().unwrap_or_default();
        let request = self.case.request(method);
        let answer = walk(self, &agent, request, &self.policy).await;
        let sent = self.state().sent.clone();
        let is_literal = || {
            let url = Url::parse(&self.case.url).ok();
            let host = url
                .as_ref()
                .and_then(UrlOrigin::of)
                .map(|origin| origin.host);
            matches!(host, Some(Address::Ip(_)))
        };
        let stage = match &answer {
            Err(refusal) => refusal.stage,
            Ok(_) if sent.len() > 1 => EgressStage::Redirect,
            Ok(_) if is_literal() => EgressStage::Ip,
            Ok(_) => EgressStage::Dns,
        };
        CaseOutcome {
            refusal: answer.err(),
            stage: stage.name(),
            sent,
        }
    }

    /// The addresses of a name, one set for each look-up; the last set repeats.
    fn answers(&self, name: &str) -> Option<Vec<&'a str>> {
        let same = |own: &str| own.trim_end_matches('.').eq_ignore_ascii_case(name);
        let case = self.case;
        let times = {
            let mut state = self.state();
            let times = state.asked.entry(name.to_owned()).or_default();
            *times += 1;
            *times
        };
        let successive = case.dns_seq.iter().find(|(own, _)| same(own));
        let successive = successive.and_then(|(_, all)| all.get(times - 1).or(all.last()));
        let constant = || {
            case.dns
                .iter()
                .find(|(own, _)| same(own))
                .map(|(_, all)| all)
        };
        let found = successive.or_else(constant)?;
        Some(found.iter().map(String::as_str).collect())
    }
}

impl Transport for Script<'_> {
    async fn resolve(&self, name: &str, _deadline: Instant) -> Result<Vec<IpAddr>, Rule> {
        let name = name.strip_suffix('.').unwrap_or(name);
        let answers = self.answers(name).ok_or(Rule::Unresolved)?;
        let addresses = answers.iter().map(|answer| answer.parse());
        // Invalid addresses, such as an address with a zone, count as not public.
        addresses
            .collect::<Result<_, _>>()
            .map_err(|_| Rule::Unresolved)
    }

    async fn exchange(
        &self,
        _target: &EgressTarget,
        addresses: &[SocketAddr],
        message: TransportRequest,
        _bounds: TransportLimits,
    ) -> Result<TransportResponse, TransportFailure> {
        let mut state = self.state();
        let hop = self.case.hops.get(state.sent.len()).cloned();
        state
            .sent
            .extend(addresses.first().map(|&peer| SentMessage {
                peer,
                has_credential: message.headers.contains_key(header::AUTHORIZATION),
            }));
        Ok(TransportResponse {
            status: if hop.is_some() { 302 } else { 200 },
            headers: HeaderMap::new(),
            location: hop.map(Ok),
            body: Bytes::new(),
            truncated: false,
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    async fn disagreement(case: &str) -> Option<Disagreement> {
        let cases = read(case.as_bytes()).unwrap();
        assert_eq!(cases.len(), 1);
        cases[0].disagreement(None).await
    }

    /// Without this test, a comparison that never fails would go unnoticed.
    #[tokio::test]
    async fn what_the_guard_does_otherwise_is_found() {
        let sound = r#"{"id":"1","url":"https://a.com/","verdict":"allow","stage":"dns","dns":{"a.com":["1.1.1.1"]}"#;
        for (wrong, hint) in [
            (r#"{"id":"1","url":"https://10.0.0.1/","verdict":"allow"}"#.to_owned(), "RFC 1918"),
            (r#"{"id":"1","url":"https://10.0.0.1/","verdict":"block","stage":"dns"}"#.to_owned(), "at ip"),
            (sound.replace("allow", "block") + "}", "allow at dns"),
            (format!(r#"{sound},"connect":"1.1.1.2:443"}}"#), "1.1.1.1:443"),
            (format!(r#"{sound},"calls":2,"second_verdict":"block"}}"#), "allow"),
            (
                r#"{"id":"1","url":"https://a.com/","verdict":"allow","calls":2,"second_verdict":"block_or_same_peer",
                    "dns_seq":{"a.com":[["1.1.1.1"],["1.1.1.2"]]}}"#
                    .replace('\n', ""),
                "1.1.1.2:443",
            ),
            (
                sound.replace("dns\",", "redirect\",") + r#","hops":["/b"],"strip_auth":true}"#,
                "with a credential",
            ),
        ] {
            let found = disagreement(&wrong).await.unwrap().found;
            assert!(found.contains(hint), "{wrong}: {found}");
        }
        assert!(disagreement(&format!("{sound}}}")).await.is_none());
        let nothing = r#""connect":null,"hops":null,"stage":null"#;
        let sound = sound.replace(r#""stage":"dns""#, nothing);
        assert!(disagreement(&format!("{sound}}}")).await.is_none());
    }

    #[test]
    fn the_first_line_that_is_no_case_is_named() {
        let sound = r#"{"id":"1","url":"x","verdict":"block"}"#;
        for bad in [
            "{",
            "[]",
            r#"{"id":"1","url":"x","verdict":"maybe"}"#,
            "\u{0}",
        ] {
            let file = format!("{sound}\n\n{bad}\n{bad}\n");
            assert_eq!(read(file.as_bytes()).unwrap_err().line, 3, "{bad}");
        }
    }
}
