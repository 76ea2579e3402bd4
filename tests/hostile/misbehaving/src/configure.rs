//! Commands of the option named `option`: `refused`, `spin`, `trap` and `huge`. Any other value is accepted, and is
//! the command of each request without one.

use crate::bindings::exports::weir::plugin::adapter::{RefusedSetting, Setting};
use crate::command::Fault;
use crate::fault;

/// Returns the options as JSON: a list of names and values.
pub(crate) fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
    for (name, value) in options {
        match (name.as_str(), value.as_str()) {
            ("option", "refused") => {
                return Err(RefusedSetting {
                    name: name.clone(),
                    why: "must not be `refused`".into(),
                });
            }
            ("option", "spin") => fault::commit(&Fault::Spin),
            ("option", "trap") => fault::commit(&Fault::Unreachable),
            ("option", "huge") => return Ok(vec![b'x'; HUGE_BYTES]),
            _ => {}
        }
    }
    Ok(serde_json::to_vec(options).expect("texts are JSON"))
}

/// Returns the value of the last option; empty without one.
pub(crate) fn standing_command(configuration: &[u8]) -> String {
    let options: Vec<Setting> = serde_json::from_slice(configuration).unwrap_or_default();
    options.into_iter().last().unwrap_or_default().1
}

const HUGE_BYTES: usize = 64 << 20;
