//! What the option named `option` may command: `refused`, `spin`, `trap` and `huge`. Any other value
//! is accepted.

use crate::bindings::exports::weir::plugin::adapter::{RefusedSetting, Setting};
use crate::command::Fault;
use crate::fault;

/// What every option comes to: as JSON, a list of names and values.
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

const HUGE_BYTES: usize = 64 << 20;
