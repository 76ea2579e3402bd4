//! A component's configuration: parsed once from the operator's options, and passed to the component with each piece
//! of work.

use crate::guest::GuestError;
use crate::printable::printable;

/// Maximum bytes of a component's configuration.
const CONFIGURATION_BYTES: usize = 64 << 10;

/// The reason that a component cannot work with its options.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigureError {
    /// The component refuses an option.
    #[error("the option {name:?} {why}")]
    Refused {
        /// The option's name.
        name: String,
        /// The fault as a predicate.
        why: String,
    },
    /// The configuration is too large.
    #[error("the component's configuration has {0} bytes, more than {CONFIGURATION_BYTES}")]
    TooLarge(usize),
    /// The component failed.
    #[error(transparent)]
    Guest(#[from] GuestError),
}

/// Checks that a component knows all options that are set.
pub(crate) fn check_names(
    known: &[String],
    options: &[(String, String)],
) -> Result<(), ConfigureError> {
    match options.iter().find(|(name, _)| !known.contains(name)) {
        None => Ok(()),
        Some((name, _)) => Err(ConfigureError::Refused {
            name: printable(name, 64),
            why: "is unknown to it".to_owned(),
        }),
    }
}

/// Returns a component's configuration, or the name of a refused option and the reason.
pub(crate) fn check_made(
    made: Result<Vec<u8>, (String, String)>,
) -> Result<Vec<u8>, ConfigureError> {
    match made {
        Ok(bytes) if bytes.len() > CONFIGURATION_BYTES => {
            Err(ConfigureError::TooLarge(bytes.len()))
        }
        Ok(bytes) => Ok(bytes),
        Err((name, why)) => Err(ConfigureError::Refused {
            name: printable(&name, 64),
            why: printable(&why, 200),
        }),
    }
}
