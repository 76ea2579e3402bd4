//! What a component makes of what an operator set: asked for once, and handed to it again with each piece of work.

use crate::guest::GuestError;
use crate::printable::printable;

/// Bytes that a component may keep of its options.
const CONFIGURATION_BYTES: usize = 64 << 10;

/// Why a component cannot work with its options.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigureError {
    /// It refuses one of them.
    #[error("the option {name:?} {why}")]
    Refused {
        /// Its name.
        name: String,
        /// What is wrong with it, as a predicate.
        why: String,
    },
    /// It keeps more of them than it may.
    #[error("it keeps {0} bytes of its options, more than {CONFIGURATION_BYTES}")]
    TooLarge(usize),
    /// It failed.
    #[error(transparent)]
    Guest(#[from] GuestError),
}

/// Checks that a component has all of the options that are set.
pub(crate) fn check_names(
    known: &[String],
    options: &[(String, String)],
) -> Result<(), ConfigureError> {
    match options.iter().find(|(name, _)| !known.contains(name)) {
        None => Ok(()),
        Some((name, _)) => Err(ConfigureError::Refused {
            name: printable(name, 64),
            why: "is not one that it has".to_owned(),
        }),
    }
}

/// Takes what a component made of its options, or the name of the one that it refuses, and why.
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
