//! An operator's options for an upstream of this dialect.

use weir_sdk::adapter::{Failure, RefusedSetting, Setting};
use weir_sdk::options::{from_lines, from_settings};

pub(super) const NAMES: [&str; 3] = ["thinking", "sampling", "cache-points"];

/// The forms of reasoning that a model has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Thinking {
    #[default]
    None,
    Adaptive,
    Budget,
}

/// The options, each with its setting or its default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) thinking: Thinking,
    /// Whether the model takes no temperature and the like.
    pub(super) is_without_sampling: bool,
    /// Whether the model has no prompt cache.
    pub(super) is_without_cache: bool,
}

impl Options {
    pub(super) fn from_settings(settings: &[Setting]) -> Result<Self, RefusedSetting> {
        let mut options = Self::default();
        from_settings(settings, |name, value| options.set(name, value))?;
        Ok(options)
    }

    /// Writes a line of name and value for each option that is not at its default.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut lines = String::new();
        match self.thinking {
            Thinking::None => {}
            Thinking::Adaptive => lines += "thinking adaptive\n",
            Thinking::Budget => lines += "thinking budget\n",
        }
        if self.is_without_sampling {
            lines += "sampling false\n";
        }
        if self.is_without_cache {
            lines += "cache-points false\n";
        }
        lines.into_bytes()
    }

    /// Parses the result of [`to_bytes`](Self::to_bytes).
    pub(super) fn from_bytes(configuration: &[u8]) -> Result<Self, Failure> {
        let mut options = Self::default();
        from_lines(configuration, |name, value| options.set(name, value))?;
        Ok(options)
    }

    /// Sets an option. The error completes a sentence whose subject is the option.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match (name, value) {
            ("thinking", "none") => self.thinking = Thinking::None,
            ("thinking", "adaptive") => self.thinking = Thinking::Adaptive,
            ("thinking", "budget") => self.thinking = Thinking::Budget,
            ("thinking", _) => return Err("must be none, adaptive or budget".to_owned()),
            ("sampling", "true" | "false") => self.is_without_sampling = value == "false",
            ("cache-points", "true" | "false") => self.is_without_cache = value == "false",
            ("sampling" | "cache-points", _) => return Err("must be true or false".to_owned()),
            _ => return Err("is not an option of this adapter".to_owned()),
        }
        Ok(())
    }
}
