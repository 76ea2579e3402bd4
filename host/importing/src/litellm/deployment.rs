//! The provider behind a deployment: its adapter, base URL, credential and timeouts.
//!
//! The base URLs and variables are those of litellm 1.110.2, `litellm_core_utils/get_llm_provider_logic.py` and `llms/`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use weir_upstream::BaseUrl;
use weir_upstream::redact;

use crate::prices::section::quoted;

use super::fields::{ImportNotes, YamlFields};
use super::yaml::{self, Node};

/// The provider of a deployment.
pub(super) struct Connection {
    /// LiteLLM's name of the provider.
    pub vendor: String,
    /// The settings below `[providers.NAME]`.
    pub settings: String,
    /// The provider's name of the model.
    pub model: String,
    /// Whether the server is the vendor's own, so that the built-in catalog's options fit.
    pub is_vendors_own: bool,
    /// Whether the deployment asks for the Responses API.
    pub uses_responses: bool,
}

/// A provider with OpenAI's Chat Completions API: its name, base URL and the variable of its key.
type Compatible = (&'static str, Option<&'static str>, Option<&'static str>);

const COMPATIBLE: [Compatible; 20] = [
    (
        "openai",
        Some("https://api.openai.com/v1"),
        Some("OPENAI_API_KEY"),
    ),
    (
        "cerebras",
        Some("https://api.cerebras.ai/v1"),
        Some("CEREBRAS_API_KEY"),
    ),
    (
        "deepinfra",
        Some("https://api.deepinfra.com/v1/openai"),
        Some("DEEPINFRA_API_KEY"),
    ),
    (
        "deepseek",
        Some("https://api.deepseek.com/beta"),
        Some("DEEPSEEK_API_KEY"),
    ),
    (
        "fireworks_ai",
        Some("https://api.fireworks.ai/inference/v1"),
        Some("FIREWORKS_API_KEY"),
    ),
    (
        "groq",
        Some("https://api.groq.com/openai/v1"),
        Some("GROQ_API_KEY"),
    ),
    (
        "mistral",
        Some("https://api.mistral.ai/v1"),
        Some("MISTRAL_API_KEY"),
    ),
    (
        "moonshot",
        Some("https://api.moonshot.ai/v1"),
        Some("MOONSHOT_API_KEY"),
    ),
    (
        "nvidia_nim",
        Some("https://integrate.api.nvidia.com/v1"),
        Some("NVIDIA_NIM_API_KEY"),
    ),
    (
        "openrouter",
        Some("https://openrouter.ai/api/v1"),
        Some("OPENROUTER_API_KEY"),
    ),
    (
        "perplexity",
        Some("https://api.perplexity.ai"),
        Some("PERPLEXITYAI_API_KEY"),
    ),
    (
        "sambanova",
        Some("https://api.sambanova.ai/v1"),
        Some("SAMBANOVA_API_KEY"),
    ),
    (
        "together_ai",
        Some("https://api.together.ai/v1"),
        Some("TOGETHER_API_KEY"),
    ),
    ("xai", Some("https://api.x.ai/v1"), Some("XAI_API_KEY")),
    ("custom_openai", None, None),
    ("hosted_vllm", None, None),
    ("litellm_proxy", None, None),
    ("llamafile", None, None),
    ("lm_studio", None, None),
    ("openai_like", None, None),
];

/// The other providers for which weir has an adapter.
const OTHERS: [&str; 7] = [
    "anthropic",
    "azure",
    "bedrock",
    "gemini",
    "ollama",
    "ollama_chat",
    "vertex_ai",
];

/// The beginning of a reference to an environment variable.
const REFERENCE: &str = "os.environ/";

/// Environment variables, and names for secrets that the file holds itself.
#[derive(Default)]
pub(super) struct ImportEnvironment {
    /// The values that the file sets.
    pub set: BTreeMap<String, String>,
    /// Generated names, by secret.
    names: BTreeMap<String, String>,
}

impl ImportEnvironment {
    /// Returns a value that is no secret. A reference becomes the variable's present value.
    fn plain(&self, node: &Node, notes: &mut ImportNotes) -> Result<String, String> {
        let text = node
            .text()
            .ok_or_else(|| format!("{} is no text", node.at))?;
        let Some(name) = text.strip_prefix(REFERENCE) else {
            return Ok(text.to_owned());
        };
        let value = self.variable(name).ok_or_else(|| {
            format!("it needs the environment variable {name}, which is not set: set it, and import again")
        })?;
        notes.change(
            &node.at,
            format!("the configuration has the present value of the environment variable {name}"),
        );
        Ok(value)
    }

    fn variable(&self, name: &str) -> Option<String> {
        let own = self.set.get(name).cloned();
        own.or_else(|| std::env::var(name).ok())
            .filter(|value| !value.is_empty())
    }

    /// Returns the source of a secret. A secret in the file gets a variable with a new name.
    fn secret(&mut self, node: &Node, vendor: &str, notes: &mut ImportNotes) -> String {
        let text = node.text().unwrap_or_default();
        let is_name = |name: &&str| {
            let mut bytes = name.bytes();
            !name.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        if let Some(name) = text.strip_prefix(REFERENCE).filter(is_name) {
            return variable_source(name, notes);
        }
        let next = self.names.len() + 1;
        let name = self.names.entry(text.to_owned());
        let name =
            name.or_insert_with(|| format!("IMPORTED_{}_KEY_{next}", vendor.to_ascii_uppercase()));
        let first = notes.variables.entry(name.clone()).or_default();
        first.get_or_insert_with(|| node.at.clone());
        format!("{{ env = {} }}", quoted(name))
    }
}

fn variable_source(name: &str, notes: &mut ImportNotes) -> String {
    notes.variables.entry(name.to_owned()).or_default();
    format!("{{ env = {} }}", quoted(name))
}

/// The parts of a provider.
struct Parts {
    adapter: &'static str,
    base_url: String,
    credential: Option<String>,
    slot: Option<&'static str>,
    options: Option<&'static str>,
    model: String,
    is_vendors_own: bool,
}

/// Returns the provider of a deployment, whose model is named `model`, and takes the parameters that it uses.
///
/// # Errors
///
/// The reason for which weir cannot reach the deployment.
pub(super) fn connect(
    model: &str,
    params: &mut YamlFields,
    environment: &mut ImportEnvironment,
    notes: &mut ImportNotes,
) -> Result<Connection, String> {
    let (vendor, model) = vendor_of(model, params.take("custom_llm_provider"))?;
    let (model, uses_responses) = match model.strip_prefix("responses/") {
        Some(model) if ["openai", "azure"].contains(&&*vendor) => (model.to_owned(), true),
        _ => (model, false),
    };
    let mut source = Source {
        vendor: &vendor,
        params,
        environment,
        notes,
    };
    let mut parts = match &*vendor {
        "anthropic" => source.anthropic(model)?,
        "azure" => source.azure(&model)?,
        "bedrock" => source.bedrock(&model)?,
        "gemini" => source.gemini(model)?,
        "ollama" | "ollama_chat" => source.ollama(model)?,
        "vertex_ai" => source.vertex(model)?,
        _ => source.compatible(model)?,
    };
    parts
        .base_url
        .truncate(parts.base_url.trim_end_matches('/').len());
    // The URL may hold a password.
    BaseUrl::parse(&parts.base_url).map_err(|why| format!("its base URL {why}"))?;
    let mut settings = format!(
        "adapter = {}\nbase_url = {}\n",
        quoted(parts.adapter),
        quoted(&parts.base_url)
    );
    if let Some(credential) = &parts.credential {
        let _ = writeln!(settings, "credential = {credential}");
    }
    if let Some(slot) = parts.slot {
        let _ = writeln!(settings, "credential_slot = {slot}");
    }
    if let Some(options) = parts.options {
        let _ = writeln!(settings, "options = {options}");
    }
    settings.push_str(&source.timeouts()?);
    Ok(Connection {
        model: parts.model,
        is_vendors_own: parts.is_vendors_own,
        settings,
        uses_responses,
        vendor,
    })
}

/// Returns the provider's name and its name of the model.
fn vendor_of(model: &str, named: Option<Node>) -> Result<(String, String), String> {
    let is_known = |name: &str| {
        OTHERS.contains(&name) || COMPATIBLE.iter().any(|(known, _, _)| *known == name)
    };
    if let Some(vendor) = named.as_ref().and_then(Node::text) {
        let own = format!("{vendor}/");
        let model = model.strip_prefix(&own).unwrap_or(model);
        return match is_known(vendor) {
            true => Ok((vendor.to_owned(), model.to_owned())),
            false => Err(format!("weir has no adapter for the provider {vendor:?}")),
        };
    }
    match model.split_once('/') {
        Some((vendor, model)) if is_known(vendor) => Ok((vendor.to_owned(), model.to_owned())),
        Some((vendor, _)) => Err(format!("weir has no adapter for the provider {vendor:?}")),
        None => {
            // LiteLLM looks such names up in its price table.
            let vendors = [
                ("gpt-", "openai"),
                ("chatgpt-", "openai"),
                ("o1", "openai"),
                ("o3", "openai"),
                ("o4", "openai"),
                ("claude-", "anthropic"),
                ("gemini-", "vertex_ai"),
            ];
            let mut vendors = vendors.iter();
            match vendors.find(|(start, _)| model.starts_with(start)) {
                Some((_, vendor)) => Ok(((*vendor).to_owned(), model.to_owned())),
                None => Err(format!("the model {model:?} names no provider")),
            }
        }
    }
}

/// A deployment's parameters.
struct Source<'a> {
    vendor: &'a str,
    params: &'a mut YamlFields,
    environment: &'a mut ImportEnvironment,
    notes: &'a mut ImportNotes,
}

impl Source<'_> {
    fn plain(&mut self, names: &[&str]) -> Result<Option<String>, String> {
        let mut found = None;
        for name in names {
            if let Some(node) = self.params.take(name) {
                let value = self.environment.plain(&node, self.notes)?;
                found = found.or(Some(value).filter(|value| !value.is_empty()));
            }
        }
        Ok(found)
    }

    fn secret(&mut self, name: &str) -> Option<String> {
        let node = self.params.take(name)?;
        Some(self.environment.secret(&node, self.vendor, self.notes))
    }

    fn base(&mut self) -> Result<Option<String>, String> {
        let base = self.plain(&["api_base", "base_url"])?;
        Ok(base.map(|base| base.trim_end_matches('/').to_owned()))
    }

    /// Returns the source of the key. `variable` has the key if the file has none.
    fn key(&mut self, variable: Option<&str>, may_lack_it: bool) -> Option<String> {
        let node = self.params.take("api_key");
        if let Some(node) = &node
            && may_lack_it
            && let Some(text) = node.text()
            && !text.starts_with(REFERENCE)
            && text.len() < redact::MIN_BYTES
        {
            self.notes.change(
                &node.at,
                format!(
                    "weir sends no credential, because a credential has at least {} bytes",
                    redact::MIN_BYTES
                ),
            );
            return None;
        }
        match node {
            Some(node) => Some(self.environment.secret(&node, self.vendor, self.notes)),
            None => variable.map(|name| variable_source(name, self.notes)),
        }
    }

    fn compatible(&mut self, model: String) -> Result<Parts, String> {
        let mut all = COMPATIBLE.iter();
        let (_, usual, variable) = all
            .find(|(name, _, _)| *name == self.vendor)
            .ok_or("weir has no adapter for its provider")?;
        let own = self.base()?;
        let base_url = own
            .as_deref()
            .or(*usual)
            .ok_or("it has no `api_base`, so weir does not know the server")?;
        let base_url = base_url.trim_end_matches("/chat/completions").to_owned();
        let is_openai = self.vendor == "openai" && Some(&*base_url) == *usual;
        Ok(Parts {
            adapter: "openai",
            credential: self.key(*variable, own.is_some()),
            base_url,
            slot: None,
            // Other servers know the older name.
            options: (!is_openai).then_some("{ output-limit-field = \"max_tokens\" }"),
            model,
            is_vendors_own: is_openai,
        })
    }

    fn anthropic(&mut self, model: String) -> Result<Parts, String> {
        let own = self.base()?;
        let base_url = match &own {
            None => "https://api.anthropic.com/v1".to_owned(),
            // LiteLLM appends the missing part of `/v1/messages`.
            Some(base) => match base.trim_end_matches("/messages") {
                base if base.ends_with("/v1") => base.to_owned(),
                base => format!("{base}/v1"),
            },
        };
        Ok(Parts {
            adapter: "anthropic",
            base_url,
            credential: self.key(Some("ANTHROPIC_API_KEY"), own.is_some()),
            slot: None,
            options: None,
            model,
            is_vendors_own: true,
        })
    }

    fn gemini(&mut self, model: String) -> Result<Parts, String> {
        let own = self.base()?;
        Ok(Parts {
            adapter: "gemini",
            credential: self.key(Some("GEMINI_API_KEY"), own.is_some()),
            base_url: own
                .unwrap_or_else(|| "https://generativelanguage.googleapis.com/v1beta".to_owned()),
            slot: None,
            options: None,
            model,
            is_vendors_own: true,
        })
    }

    fn ollama(&mut self, model: String) -> Result<Parts, String> {
        let base = self.base()?;
        let base = base.as_deref().unwrap_or("http://localhost:11434");
        let base = base.trim_end_matches("/api");
        Ok(Parts {
            adapter: "ollama",
            base_url: format!("{base}/api"),
            credential: self.key(None, true),
            slot: None,
            options: None,
            model,
            is_vendors_own: false,
        })
    }

    /// Azure's v1 API takes the deployment's name as the model, and no version.
    fn azure(&mut self, model: &str) -> Result<Parts, String> {
        let base = self.base()?;
        let base = base.or_else(|| self.environment.variable("AZURE_API_BASE"));
        let base = base.ok_or("it has no `api_base`, so weir does not know the resource")?;
        // Some files name a path of the older API.
        let base = base.split("/openai/").next().unwrap_or_default();
        let base_url = format!("{}/openai/v1", base.trim_end_matches("/openai"));
        if let Some(version) = self.params.take("api_version") {
            self.notes.change(
                version.at,
                "weir uses Azure's v1 API, which has no versions",
            );
        }
        let tenant = self.plain(&["tenant_id"])?;
        let client = self.plain(&["client_id"])?;
        let (credential, slot) = match (tenant, client, self.secret("client_secret")) {
            (Some(tenant), Some(client), Some(secret)) => {
                let (tenant, client) = (quoted(&tenant), quoted(&client));
                let entra = format!(
                    "{{ entra = {{ tenant = {tenant}, client_id = {client}, client_secret = {secret} }} }}"
                );
                (Some(entra), None)
            }
            _ => (
                self.key(Some("AZURE_API_KEY"), false),
                Some("{ header = \"api-key\" }"),
            ),
        };
        let model = ["o_series/", "gpt5_series/"]
            .iter()
            .fold(model, |model, series| {
                model.strip_prefix(series).unwrap_or(model)
            });
        Ok(Parts {
            adapter: "openai",
            base_url,
            credential,
            slot,
            options: None,
            model: model.to_owned(),
            is_vendors_own: true,
        })
    }

    /// Bedrock serves models of OpenAI with OpenAI's API, and others with its own Converse.
    fn bedrock(&mut self, model: &str) -> Result<Parts, String> {
        let id = ["converse/", "invoke/"]
            .iter()
            .fold(model, |model, api| model.strip_prefix(api).unwrap_or(model));
        if id.contains('/') && !id.starts_with("arn:") {
            return Err("weir has no adapter for this API of Bedrock".to_owned());
        }
        let region = self.plain(&["aws_region_name", "region_name"])?;
        let variables = ["AWS_REGION_NAME", "AWS_REGION"];
        let mut variables = variables.iter();
        let region = region
            .or_else(|| variables.find_map(|name| self.environment.variable(name)))
            .ok_or("it has no `aws_region_name`")?;
        let mut keys = format!("region = {}", quoted(&region));
        for (name, setting) in [
            ("aws_access_key_id", "access_key_id"),
            ("aws_secret_access_key", "secret_access_key"),
            ("aws_session_token", "session_token"),
        ] {
            if let Some(source) = self.secret(name) {
                let _ = write!(keys, ", {setting} = {source}");
            }
        }
        let base_url = self
            .plain(&["aws_bedrock_runtime_endpoint"])?
            .unwrap_or_else(|| format!("https://bedrock-runtime.{region}.amazonaws.com"));
        let base_url = base_url.trim_end_matches('/');
        let (adapter, base_url) = match id.starts_with("openai.") {
            true => ("openai", format!("{base_url}/openai/v1")),
            false => ("bedrock", base_url.to_owned()),
        };
        Ok(Parts {
            adapter,
            base_url,
            credential: Some(format!("{{ aws = {{ {keys} }} }}")),
            slot: None,
            options: None,
            model: id.to_owned(),
            is_vendors_own: false,
        })
    }

    fn vertex(&mut self, model: String) -> Result<Parts, String> {
        let (adapter, publisher, options) = match &*model {
            gemini if gemini.starts_with("gemini-") => ("gemini", "google", None),
            claude if claude.starts_with("claude-") => {
                ("anthropic", "anthropic", Some("{ platform = \"vertex\" }"))
            }
            _ => {
                let why = "weir has no adapter for Vertex AI's other models than Gemini and Claude";
                return Err(why.to_owned());
            }
        };
        let project = self.plain(&["vertex_project"])?;
        let project = project.or_else(|| self.environment.variable("VERTEXAI_PROJECT"));
        let project = project.ok_or("it has no `vertex_project`")?;
        let location = self.plain(&["vertex_location", "region_name"])?;
        let location = location.or_else(|| self.environment.variable("VERTEXAI_LOCATION"));
        let location = location.unwrap_or_else(|| "us-central1".to_owned());
        let host = match &*location {
            "global" => "aiplatform.googleapis.com".to_owned(),
            _ => format!("{location}-aiplatform.googleapis.com"),
        };
        let credential = match self.params.take("vertex_credentials") {
            None => "{ google = {} }".to_owned(),
            Some(node) => {
                let text = node.text().unwrap_or_default();
                let is_path =
                    !text.is_empty() && !text.starts_with(REFERENCE) && !text.contains('{');
                let source = match is_path {
                    true => format!("{{ file = {} }}", quoted(text)),
                    false => self.environment.secret(&node, self.vendor, self.notes),
                };
                format!("{{ google = {{ service_account = {source} }} }}")
            }
        };
        Ok(Parts {
            adapter,
            base_url: format!(
                "https://{host}/v1/projects/{project}/locations/{location}/publishers/{publisher}"
            ),
            credential: Some(credential),
            slot: Some("\"bearer\""),
            options,
            model,
            is_vendors_own: true,
        })
    }

    /// LiteLLM's timeouts limit the wait for the next bytes: `stream_timeout` of streams, `timeout` of others. Streams have no
    /// first byte of their own: `first_byte_ms` would leave plain requests for the next provider, too.
    fn timeouts(&mut self) -> Result<String, String> {
        let mut limit = |name| -> Result<Option<u64>, String> {
            let Some(node) = self.params.take(name) else {
                return Ok(None);
            };
            let text = self.environment.plain(&node, self.notes)?;
            Ok(milliseconds(&text, &node.at, self.notes))
        };
        let plain = limit("timeout")?;
        let stream = limit("stream_timeout")?;
        let all = [
            ("first_byte_ms", plain),
            ("first_token_ms", stream),
            ("idle_ms", plain),
        ];
        let set: Vec<_> = all
            .into_iter()
            .filter_map(|(name, ms)| Some(format!("{name} = {}", ms?)))
            .collect();
        Ok(match set.is_empty() {
            true => String::new(),
            false => format!("timeouts = {{ {} }}\n", set.join(", ")),
        })
    }
}

pub(super) fn milliseconds(seconds: &str, at: &str, notes: &mut ImportNotes) -> Option<u64> {
    let seconds = yaml::number(seconds).filter(|seconds| (0.001..=1e7).contains(seconds));
    if seconds.is_none() {
        notes.leave_out(at, "it is no number of seconds");
    }
    seconds.map(|seconds| (seconds * 1_000.0).round() as u64)
}
