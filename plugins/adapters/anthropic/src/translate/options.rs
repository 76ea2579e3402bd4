//! An operator's options for an upstream of this dialect.

use weir_sdk::adapter::{Failure, RefusedSetting, Setting};
use weir_sdk::options::{from_lines, from_settings, names};

pub(super) const NAMES: [&str; 5] = ["thinking", "sampling", "betas", "platform", PASS_FIELDS];

/// The option that the host reads: the fields and tools that it lets through to the upstream.
const PASS_FIELDS: &str = "pass-fields";

/// The forms of reasoning that a model has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Thinking {
    /// The client's form; for an effort, the adaptive one.
    #[default]
    Auto,
    Adaptive,
    Budget,
    None,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Platform {
    #[default]
    Anthropic,
    Vertex,
    Bedrock,
}

/// The options, each with its setting or its default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Options<'a> {
    pub(super) thinking: Thinking,
    /// Whether the model takes no temperature and the like.
    pub(super) is_without_sampling: bool,
    /// Names, separated by commas.
    betas: &'a str,
    pub(super) platform: Platform,
}

impl<'a> Options<'a> {
    pub(super) fn from_settings(settings: &'a [Setting]) -> Result<Self, RefusedSetting> {
        let mut options = Self::default();
        from_settings(settings, |name, value| options.set(name, value))?;
        Ok(options)
    }

    /// Writes a line of name and value for each option that is set.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut lines = String::new();
        let thinking = match self.thinking {
            Thinking::Auto => "",
            Thinking::Adaptive => "adaptive",
            Thinking::Budget => "budget",
            Thinking::None => "none",
        };
        let sampling = if self.is_without_sampling {
            "false"
        } else {
            ""
        };
        let platform = match self.platform {
            Platform::Anthropic => "",
            Platform::Vertex => "vertex",
            Platform::Bedrock => "bedrock",
        };
        let values = [thinking, sampling, self.betas, platform];
        for (name, value) in NAMES.iter().zip(values) {
            if !value.is_empty() {
                lines.extend([name, " ", value, "\n"]);
            }
        }
        lines.into_bytes()
    }

    /// Parses the result of [`to_bytes`](Self::to_bytes).
    pub(super) fn from_bytes(configuration: &'a [u8]) -> Result<Self, Failure> {
        let mut options = Self::default();
        from_lines(configuration, |name, value| options.set(name, value))?;
        Ok(options)
    }

    pub(super) fn betas(&self) -> impl Iterator<Item = &'a str> {
        names(self.betas)
    }

    /// Sets an option. The error completes a sentence whose subject is the option.
    fn set(&mut self, name: &str, value: &'a str) -> Result<(), String> {
        let on_one_line = |value: &'a str| {
            if value.contains(['\n', '\r']) {
                Err("must be names on one line".to_owned())
            } else {
                Ok(value)
            }
        };
        match name {
            "thinking" => {
                self.thinking = match value {
                    "auto" => Thinking::Auto,
                    "adaptive" => Thinking::Adaptive,
                    "budget" => Thinking::Budget,
                    "none" => Thinking::None,
                    _ => return Err("must be auto, adaptive, budget or none".to_owned()),
                }
            }
            "sampling" => {
                self.is_without_sampling = match value {
                    "true" => false,
                    "false" => true,
                    _ => return Err("must be true or false".to_owned()),
                }
            }
            "betas" => self.betas = on_one_line(value)?,
            PASS_FIELDS => {
                on_one_line(value)?;
            }
            "platform" => {
                self.platform = match value {
                    "anthropic" => Platform::Anthropic,
                    "vertex" => Platform::Vertex,
                    "bedrock" => Platform::Bedrock,
                    _ => return Err("must be anthropic, vertex or bedrock".to_owned()),
                }
            }
            _ => return Err("is not an option of this adapter".to_owned()),
        }
        Ok(())
    }
}
