//! The input of a command: options, files, requests and recorded responses.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, anyhow, ensure};
use weir_dialects::ChatCall;
use weir_kinds::{ClientCall, read_any};
use weir_plugins::slot_name::{SLOT_NAMES, is_slot_name};
use weir_sandbox::adapter::bindings::adapter::Setting;
use weir_sandbox::limits::COMPONENT_BYTES;
use weir_sandbox::tool::bindings::tool::{CallContext, Integration};
use weir_upstream::recorded::RecordedRequest;

use crate::recording::RecordedResponse;
use crate::trial::TrialRequest;

/// The output limit of a request without one. A gateway takes the limit of the model.
const DEFAULT_OUTPUT_TOKENS: u32 = 1024;

/// The facts that a plugin gets beside its request.
#[derive(Debug, Clone, Default)]
pub struct PluginInput {
    /// For a tool: the integrations that its agent may call, as id and base URL.
    pub integrations: Vec<(String, String)>,
    /// For a tool: the webhooks of its agent.
    pub webhooks: Vec<String>,
    /// For a tool: the names of credentials. A credential with the id of an integration belongs to that integration.
    pub credentials: Vec<String>,
    /// For a filter: the names of providers that may serve the request. Default: `provider`.
    pub providers: Vec<String>,
    /// For an adapter or a filter: its options. A later value of an option replaces an earlier one.
    pub options: Vec<(String, String)>,
}

impl PluginInput {
    pub(crate) fn providers(&self) -> Vec<String> {
        match &self.providers[..] {
            [] => vec!["provider".to_owned()],
            providers => providers.to_vec(),
        }
    }

    pub(crate) fn context(&self) -> CallContext {
        let integrations = self.integrations.iter().map(|(id, base_url)| Integration {
            id: id.clone(),
            base_url: base_url.trim_end_matches('/').to_owned(),
            credential: self.credentials.iter().find(|name| *name == id).cloned(),
        });
        CallContext {
            webhook_urls: self.webhooks.clone(),
            integrations: integrations.collect(),
            credentials: self.credentials.clone(),
        }
    }

    /// Returns the options in the order of their names, each once.
    pub(crate) fn options(&self) -> Vec<Setting> {
        let options: BTreeMap<_, _> = self.options.iter().cloned().collect();
        options.into_iter().collect()
    }
}

/// Parses the name of a slot. The name becomes a part of a URL.
///
/// # Errors
///
/// The rule for slot names.
pub fn slot_name(slot: &str) -> Result<String, String> {
    match is_slot_name(slot) {
        true => Ok(slot.to_owned()),
        false => Err(SLOT_NAMES.to_owned()),
    }
}

/// Reads a component. Larger components than any gateway accepts are an error here, before a long upload.
pub fn read_component(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = read(path)?;
    ensure!(
        bytes.len() <= COMPONENT_BYTES,
        "{} has {} bytes; a component has at most {COMPONENT_BYTES}",
        path.display(),
        bytes.len()
    );
    Ok(bytes)
}

pub(crate) fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("reading {}", file.display()))
}

/// Reads a file, or standard input for `-`.
pub(crate) fn read_file_or_stdin(file: &Path) -> anyhow::Result<Vec<u8>> {
    if file != Path::new("-") {
        return read(file);
    }
    let mut bytes = Vec::new();
    std::io::stdin()
        .read_to_end(&mut bytes)
        .context("reading standard input")?;
    Ok(bytes)
}

/// Parses a request in the format of weir's own endpoints, or a recorded request in the vocabulary of the contract.
pub(crate) fn read_request(body: &[u8]) -> anyhow::Result<TrialRequest> {
    if is_recorded(body) {
        let recorded: RecordedRequest =
            serde_json::from_slice(body).context("the recorded request cannot be read")?;
        return TrialRequest::recorded(&recorded, body.len());
    }
    let call = read_any(body).map_err(|error| {
        let refused = format!("{} {}", error.status().as_u16(), error.code());
        anyhow!("the request is refused: {refused}: {}", error.message())
    })?;
    Ok(match call {
        ClientCall::Chat(call) => with_limit(*call).into(),
        ClientCall::Images(call) => (*call).into(),
    })
}

/// Tells whether a request comes from `weir record`.
fn is_recorded(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Mark {
        #[serde(rename = "recorded")]
        _recorded: serde::de::IgnoredAny,
    }
    serde_json::from_slice::<Mark>(body).is_ok()
}

/// Sets the output limit that the client asks for, or the default.
pub(crate) fn with_limit(mut call: ChatCall) -> ChatCall {
    call.request.max_output_tokens = call.output_limit.unwrap_or(DEFAULT_OUTPUT_TOKENS);
    call
}

pub(crate) fn read_recording(file: &Path) -> anyhow::Result<RecordedResponse> {
    RecordedResponse::parse(&read(file)?)
        .map_err(|why| anyhow!("{} is not a recorded response: {why}", file.display()))
}
