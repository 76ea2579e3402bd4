//! An operator's options for an upstream of this dialect.

use weir_sdk::adapter::{Failure, RefusedSetting, Setting};
use weir_sdk::options::{from_lines, from_settings, names};

/// The names of the options.
pub(super) const NAMES: [&str; 5] = [
    "output-limit-field",
    "stream-usage",
    "reasoning-field",
    "end-user-field",
    "pass-fields",
];

/// Fields that no option passes. The fields that `request` writes would appear twice; the choice of the output limit
/// decides the payer; and only one of several choices is read.
const OWN_FIELDS: [&str; 21] = [
    "model",
    "messages",
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
    pub(super) output_limit_field: &'a str,
    pub(super) stream_usage: bool,
    pub(super) reasoning_field: Option<&'a str>,
    pub(super) end_user_field: Option<&'a str>,
    /// Names, separated by commas.
    pass_fields: &'a str,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            output_limit_field: "max_completion_tokens",
            stream_usage: true,
            reasoning_field: None,
            end_user_field: Some("user"),
            pass_fields: "",
        }
    }
}

impl<'a> Options<'a> {
    /// Parses an operator's settings.
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
        line("pass-fields", self.pass_fields, default.pass_fields);
        lines.into_bytes()
    }

    /// Parses the result of [`to_bytes`](Self::to_bytes).
    pub(super) fn from_bytes(configuration: &'a [u8]) -> Result<Self, Failure> {
        let mut options = Self::default();
        from_lines(configuration, |name, value| options.set(name, value))?;
        Ok(options)
    }

    /// Returns whether the operator passes this field.
    pub(super) fn passes(&self, field: &str) -> bool {
        names(self.pass_fields).any(|name| name == field)
    }

    /// Sets an option. The error completes a sentence whose subject is the option.
    fn set(&mut self, name: &str, value: &'a str) -> Result<(), String> {
        match (name, value) {
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
            _ => return Err("is not an option of this adapter".to_owned()),
        }
        Ok(())
    }
}
