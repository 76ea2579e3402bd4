//! An operator's options for an upstream of this dialect.

use weir_sdk::adapter::{Failure, RefusedSetting, Setting};
use weir_sdk::options::{from_lines, from_settings, names};
use weir_sdk::path::encode_segment;

use super::completions::CompletionsApi;
use super::effort::{OFF, WORDS};
use super::responses;

/// Prefix of the paths of Azure's deployments.
pub(super) const DEPLOYMENTS: &str = "/deployments/";

pub(super) const NAMES: [&str; 14] = [
    "api",
    "completions",
    "efforts",
    "sampling",
    "output-limit-field",
    "stream-usage",
    "reasoning-field",
    "end-user-field",
    "input-type",
    "dimensions-field",
    "rerank-limit-field",
    "speech-events",
    "pass-fields",
    "azure-api-version",
];

/// Fields that no option passes. The fields that `request` writes would appear twice; the choice of the output limit
/// decides the payer; and only one of several choices is read.
const OWN_FIELDS: [&str; 23] = [
    "model",
    "messages",
    "prompt",
    "suffix",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "reasoning_effort",
    "modalities",
    "max_completion_tokens",
    "max_tokens",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "n",
    "functions",
    "function_call",
];

/// The options, each with its setting or its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Options<'a> {
    /// Whether chats go to the Responses API.
    pub(super) uses_responses: bool,
    /// The API for Completions; without one, the prompt is a chat.
    pub(super) completions: Option<CompletionsApi>,
    /// The efforts that the model has, separated by commas; all if empty.
    pub(super) efforts: &'a str,
    /// Whether the model takes a temperature and the like.
    pub(super) takes_sampling: bool,
    pub(super) output_limit_field: &'a str,
    pub(super) stream_usage: bool,
    pub(super) reasoning_field: Option<&'a str>,
    pub(super) end_user_field: Option<&'a str>,
    /// Whether embeddings take `input_type`.
    pub(super) takes_input_type: bool,
    pub(super) dimensions_field: &'a str,
    pub(super) rerank_limit_field: &'a str,
    /// Whether speech comes as events.
    pub(super) has_speech_events: bool,
    /// Names, separated by commas.
    pass_fields: &'a str,
    /// The version of Azure's API whose paths name a deployment; empty for other servers.
    azure_api_version: &'a str,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            uses_responses: false,
            completions: None,
            efforts: "",
            takes_sampling: true,
            output_limit_field: "max_completion_tokens",
            stream_usage: true,
            reasoning_field: None,
            end_user_field: Some("user"),
            takes_input_type: false,
            dimensions_field: "dimensions",
            rerank_limit_field: "top_n",
            has_speech_events: false,
            pass_fields: "",
            azure_api_version: "",
        }
    }
}

impl<'a> Options<'a> {
    pub(super) fn from_settings(settings: &'a [Setting]) -> Result<Self, RefusedSetting> {
        let mut options = Self::default();
        from_settings(settings, |name, value| options.set(name, value))?;
        Ok(options)
    }

    /// Writes a line of name and value for each option that is not at its default: the usual upstream then costs an
    /// exchange nothing.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let default = Self::default();
        let mut lines = String::new();
        let mut line = |name: &str, value: &str, default: &str| {
            if value != default {
                lines.extend([name, " ", value, "\n"]);
            }
        };
        let api = match self.uses_responses {
            true => "responses",
            false => "chat-completions",
        };
        line("api", api, "chat-completions");
        let completions = self.completions.map_or("none", CompletionsApi::name);
        line("completions", completions, "none");
        line("efforts", self.efforts, default.efforts);
        line("sampling", &self.takes_sampling.to_string(), "true");
        line(
            "output-limit-field",
            self.output_limit_field,
            default.output_limit_field,
        );
        line("stream-usage", &self.stream_usage.to_string(), "true");
        line(
            "reasoning-field",
            self.reasoning_field.unwrap_or("none"),
            "none",
        );
        line(
            "end-user-field",
            self.end_user_field.unwrap_or("none"),
            "user",
        );
        line("input-type", &self.takes_input_type.to_string(), "false");
        line(
            "dimensions-field",
            self.dimensions_field,
            default.dimensions_field,
        );
        line(
            "rerank-limit-field",
            self.rerank_limit_field,
            default.rerank_limit_field,
        );
        line(
            "speech-events",
            &self.has_speech_events.to_string(),
            "false",
        );
        line("pass-fields", self.pass_fields, default.pass_fields);
        line("azure-api-version", self.azure_api_version, "");
        lines.into_bytes()
    }

    /// Parses the result of [`to_bytes`](Self::to_bytes).
    pub(super) fn from_bytes(configuration: &'a [u8]) -> Result<Self, Failure> {
        let mut options = Self::default();
        from_lines(configuration, |name, value| options.set(name, value))?;
        Ok(options)
    }

    /// Returns the path of a request of this model. On Azure, the model is a deployment, whose name is part of each path but
    /// that of Responses.
    pub(super) fn path(&self, path: &str, model: &str) -> String {
        let version = self.azure_api_version;
        match version {
            "" => path.to_owned(),
            _ if path == responses::PATH => format!("{path}?api-version={version}"),
            _ => {
                let model = encode_segment(model);
                format!("{DEPLOYMENTS}{model}{path}?api-version={version}")
            }
        }
    }

    /// Returns whether the operator passes this field.
    pub(super) fn passes(&self, field: &str) -> bool {
        names(self.pass_fields).any(|name| name == field)
    }

    /// Sets an option. The error completes a sentence whose subject is the option.
    fn set(&mut self, name: &str, value: &'a str) -> Result<(), String> {
        match (name, value) {
            ("api", "chat-completions" | "responses") => self.uses_responses = value == "responses",
            ("api", _) => return Err("must be chat-completions or responses".to_owned()),
            ("completions", name) => {
                self.completions = match name {
                    "none" => None,
                    name => Some(
                        CompletionsApi::of(name)
                            .ok_or_else(|| "must be none, text or fim".to_owned())?,
                    ),
                };
            }
            ("efforts", list) => {
                self.efforts = list;
                if list.contains(['\n', '\r']) {
                    return Err("must be words on one line".to_owned());
                }
                let mut words = names(list);
                if list != OFF
                    && let Some(unknown) = words.find(|name| !WORDS.contains(name))
                {
                    return Err(format!(
                        "has the unknown effort {unknown:?}: it must list words among {}",
                        WORDS.join(", ")
                    ));
                }
            }
            ("sampling", "true" | "false") => self.takes_sampling = value == "true",
            ("sampling", _) => return Err("must be true or false".to_owned()),
            ("output-limit-field", "max_completion_tokens" | "max_tokens") => {
                self.output_limit_field = value;
            }
            ("output-limit-field", _) => {
                return Err("must be max_completion_tokens or max_tokens".to_owned());
            }
            ("stream-usage", "true" | "false") => self.stream_usage = value == "true",
            ("stream-usage", _) => return Err("must be true or false".to_owned()),
            ("reasoning-field", "none") => self.reasoning_field = None,
            ("reasoning-field", "reasoning_content" | "reasoning" | "reasoning_details") => {
                self.reasoning_field = Some(value);
            }
            ("reasoning-field", _) => {
                return Err(
                    "must be none, reasoning_content, reasoning or reasoning_details".to_owned(),
                );
            }
            ("end-user-field", "none") => self.end_user_field = None,
            ("end-user-field", "user" | "safety_identifier") => self.end_user_field = Some(value),
            ("end-user-field", _) => {
                return Err("must be user, safety_identifier or none".to_owned());
            }
            ("input-type", "true" | "false") => self.takes_input_type = value == "true",
            ("input-type", _) => return Err("must be true or false".to_owned()),
            ("dimensions-field", "dimensions" | "output_dimension") => {
                self.dimensions_field = value;
            }
            ("dimensions-field", _) => {
                return Err("must be dimensions or output_dimension".to_owned());
            }
            ("rerank-limit-field", "top_n" | "top_k") => self.rerank_limit_field = value,
            ("rerank-limit-field", _) => return Err("must be top_n or top_k".to_owned()),
            ("speech-events", "true" | "false") => self.has_speech_events = value == "true",
            ("speech-events", _) => return Err("must be true or false".to_owned()),
            ("pass-fields", list) => {
                self.pass_fields = list;
                if list.contains(['\n', '\r']) {
                    return Err("must be names on one line".to_owned());
                }
                if let Some(own) = names(list).find(|name| OWN_FIELDS.contains(name)) {
                    return Err(format!(
                        "can't let {own} through, which is the adapter's own"
                    ));
                }
            }
            ("azure-api-version", version) => {
                let is_fine = |c: char| c.is_ascii_alphanumeric() || c == '-';
                if version.is_empty() || !version.chars().all(is_fine) {
                    return Err("must be a version such as 2024-10-21".to_owned());
                }
                self.azure_api_version = version;
            }
            _ => return Err("is not an option of this adapter".to_owned()),
        }
        Ok(())
    }
}
