//! The options that an operator sets for a provider. An adapter's configuration has them as lines of name and value.

use crate::adapter::{Failure, RefusedSetting, Setting};

/// Passes each of the operator's settings to `set`. The error of `set` completes a sentence about the option.
///
/// # Errors
///
/// The first setting that `set` refuses.
pub fn from_settings<'a>(
    settings: &'a [Setting],
    mut set: impl FnMut(&'a str, &'a str) -> Result<(), String>,
) -> Result<(), RefusedSetting> {
    for (name, value) in settings {
        set(name, value).map_err(|why| RefusedSetting {
            name: name.clone(),
            why,
        })?;
    }
    Ok(())
}

/// Passes each line of a configuration to `set`.
///
/// # Errors
///
/// [`FailureKind::Malformed`](crate::adapter::FailureKind::Malformed) for a configuration that this adapter did not write.
pub fn from_lines<'a>(
    configuration: &'a [u8],
    mut set: impl FnMut(&'a str, &'a str) -> Result<(), String>,
) -> Result<(), Failure> {
    let foreign = || Failure::malformed("this configuration is another adapter's");
    let lines = str::from_utf8(configuration).map_err(|_| foreign())?;
    for line in lines.lines() {
        let (name, value) = line.split_once(' ').ok_or_else(foreign)?;
        set(name, value).map_err(|_| foreign())?;
    }
    Ok(())
}

/// The names in a list that commas separate.
pub fn names(list: &str) -> impl Iterator<Item = &str> {
    let names = list.split(',').map(str::trim);
    names.filter(|name| !name.is_empty())
}
