//! Fields that weir may drop from a request: those of the client's header `x-weir-drop`, and of the operator's setting
//! `ignore_fields`.
//!
//! weir drops such a field only if the client's dialect or the upstream's adapter would refuse it. **Invariant:** weir
//! drops no field that it owns or prices.

use http::HeaderName;
use serde::Deserialize;
use serde_json::Value;
use weir_dialects::ADAPTERS_OWN;
use weir_errors::ApiError;
use weir_request::context::RequestContext;

/// The header with the names of fields that weir may drop instead of refusing them, separated by commas.
pub const DROP: HeaderName = HeaderName::from_static("x-weir-drop");

/// The maximum names in a header, and the maximum reads of a body: each read removes one field wherever it occurs.
const MAX_DROPPED: usize = 8;

/// Fields that weir owns, besides [`ADAPTERS_OWN`].
const OWN: [&str; 14] = [
    "model",
    "system",
    "instructions",
    "prompt",
    "tools",
    "tool_choice",
    "functions",
    "n",
    "stream",
    "stream_options",
    "store",
    "session_id",
    "previous_response_id",
    "conversation",
];

/// Names of fields, none of them weir's own.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct FieldNames(Vec<String>);

impl TryFrom<Vec<String>> for FieldNames {
    type Error = String;

    fn try_from(names: Vec<String>) -> Result<Self, String> {
        let is_own = |name: &String| {
            let mut own = OWN.iter().chain(&ADAPTERS_OWN);
            own.any(|own| own.eq_ignore_ascii_case(name))
        };
        match names.iter().any(is_own) {
            true => {
                Err("must not name a field that weir owns or prices, such as max_tokens".into())
            }
            false => Ok(Self(names)),
        }
    }
}

impl FieldNames {
    /// Returns the names of the operator with those of a request's client.
    ///
    /// # Errors
    ///
    /// 400 `INVALID_REQUEST` if the client's names are not allowed.
    pub(super) fn with_those_of(&self, context: &RequestContext) -> Result<Self, ApiError> {
        let Some(header) = context.asked(&DROP) else {
            return Ok(self.clone());
        };
        let refused = |why: &str| {
            ApiError::invalid_request(DROP.as_str(), format!("The header {DROP} {why}."))
        };
        let names = header.split(',').map(|name| name.trim().to_owned());
        let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
        if names.len() > MAX_DROPPED {
            return Err(refused(&format!(
                "must not have more than {MAX_DROPPED} names"
            )));
        }
        let Self(mut names) = Self::try_from(names).map_err(|why| refused(&why))?;
        names.extend_from_slice(&self.0);
        Ok(Self(names))
    }

    /// The names.
    pub(super) fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// Reads a body without the fields that its dialect refuses, and returns their names, too.
    pub(super) fn read<Call>(
        &self,
        body: &[u8],
        read: impl Fn(&[u8]) -> Result<Call, ApiError>,
    ) -> Result<(Call, Vec<String>), ApiError> {
        let mut error = match read(body) {
            Ok(call) => return Ok((call, Vec::new())),
            Err(error) => error,
        };
        if self.0.is_empty() {
            return Err(error);
        }
        let mut dropped = Vec::new();
        let Ok(mut body) = serde_json::from_slice::<Value>(body) else {
            return Err(error);
        };
        for _ in 0..MAX_DROPPED {
            let path = error.param().unwrap_or_default();
            let (objects, name) = path.rsplit_once('.').unwrap_or(("", path));
            if !self.0.iter().any(|known| known == name) || !remove(&mut body, objects, name) {
                return Err(error);
            }
            dropped.push(name.to_owned());
            match read(body.to_string().as_bytes()) {
                Ok(call) => return Ok((call, dropped)),
                Err(next) => error = next,
            }
        }
        Err(error)
    }
}

/// Removes a field of the objects at a path such as `messages[3].content[1]`, and of the other items of its lists. Returns
/// whether there was one.
fn remove(value: &mut Value, objects: &str, name: &str) -> bool {
    if objects.is_empty() {
        let fields = value.as_object_mut();
        return fields.is_some_and(|fields| fields.remove(name).is_some());
    }
    let (step, rest) = match objects.strip_prefix('[') {
        Some(index) => {
            let rest = index.split_once(']').map_or("", |(_, rest)| rest);
            let rest = rest.strip_prefix('.').unwrap_or(rest);
            let items = value.as_array_mut().into_iter().flatten();
            let removed = items.map(|item| remove(item, rest, name));
            return removed.fold(false, |any, removed| any | removed);
        }
        None => {
            let end = objects.find(['.', '[']).unwrap_or(objects.len());
            objects.split_at(end)
        }
    };
    let rest = rest.strip_prefix('.').unwrap_or(rest);
    let inner = value.get_mut(step);
    inner.is_some_and(|inner| remove(inner, rest, name))
}
