//! The definition of a task, read from a body: a swarm in the format of `POST /swarms`, with a name and a schedule.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use weir_errors::ApiError;

use super::schedule::ScheduleText;

/// The maximum bytes of a definition.
pub const MAX_BYTES: usize = 256 << 10;

/// The maximum characters of a name.
const MAX_NAME_CHARS: usize = 256;

/// A task, as its owner wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// The owner's name of the task.
    pub name: String,
    /// The fields of the swarm.
    pub swarm: Map<String, Value>,
    /// The schedule, if there is one.
    pub schedule: Option<ScheduleText>,
    /// Whether the schedule is paused.
    pub paused: bool,
}

impl Definition {
    /// Reads a task. The swarm is not checked yet.
    ///
    /// # Errors
    ///
    /// 400 `INVALID_REQUEST` with the path of the invalid field.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut swarm: Map<String, Value> = serde_json::from_slice(body)
            .map_err(|_| invalid("", "The body is a JSON object that defines a task."))?;
        let name = match swarm.remove("name") {
            Some(Value::String(name)) => name,
            Some(_) => return Err(invalid("name", "It is a text.")),
            None => return Err(invalid("name", "It is missing.")),
        };
        if !(1..=MAX_NAME_CHARS).contains(&name.chars().count()) || name.contains(char::is_control)
        {
            let what =
                format!("A name has 1 to {MAX_NAME_CHARS} characters and no control characters.");
            return Err(invalid("name", what));
        }
        let paused = match swarm.remove("paused") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(paused)) => paused,
            Some(_) => return Err(invalid("paused", "It is true or false.")),
        };
        let schedule = match swarm.remove("schedule") {
            None | Some(Value::Null) => None,
            Some(schedule) => Some(ScheduleText::read(&schedule)?),
        };
        if swarm.contains_key("task_id") {
            return Err(invalid("task_id", "A task gets its own id; leave it out."));
        }
        Ok(Self {
            name,
            swarm,
            schedule,
            paused,
        })
    }

    /// Returns the swarm as a body of `POST /swarms`. The task's name replaces a missing name of the pipeline.
    pub fn swarm_body(&self) -> Vec<u8> {
        let mut swarm = self.swarm.clone();
        swarm
            .entry("swarm_id")
            .or_insert_with(|| json!(self.name.clone()));
        Value::Object(swarm).to_string().into_bytes()
    }
}

fn invalid(field: &str, what: impl Into<String>) -> ApiError {
    ApiError::invalid_request(field, what)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_read_and_each_wrong_field_is_named() {
        let whole = json!({ "name": "n", "agents": [], "paused": true,
            "schedule": { "cron": "0 9 * * MON-FRI", "time_zone": "Europe/Berlin" } });
        let read = |body: &Value| Definition::read(body.to_string().as_bytes());
        let definition = read(&whole).unwrap();
        assert!(definition.paused);
        let swarm: Value = serde_json::from_slice(&definition.swarm_body()).unwrap();
        assert_eq!(swarm, json!({ "swarm_id": "n", "agents": [] }));
        for (field, value) in [
            ("name", Value::Null),
            ("name", json!("")),
            ("name", json!("a\nb")),
            ("paused", json!("no")),
            ("task_id", json!("task_1")),
            ("schedule.cron", json!({ "time_zone": "UTC" })),
            ("schedule.cron", json!({ "cron": "* * * *" })),
            ("schedule.cron", json!({ "cron": "* * * * * *" })),
            ("schedule.cron", json!({ "cron": "0 0 30 2 *" })),
            (
                "schedule.time_zone",
                json!({ "cron": "* * * * *", "time_zone": "Mars/Base" }),
            ),
            (
                "schedule.zone",
                json!({ "cron": "* * * * *", "zone": "UTC" }),
            ),
            ("schedule", json!("* * * * *")),
        ] {
            let mut body = whole.clone();
            body[field.split('.').next().unwrap()] = value;
            let error = read(&body).unwrap_err();
            assert_eq!(
                (error.code(), error.param()),
                ("INVALID_REQUEST", Some(field)),
                "{body}"
            );
        }
        assert!(Definition::read(b"[]").is_err());
    }
}
