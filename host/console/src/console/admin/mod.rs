//! The administrators' pages: a view of the API's `/admin`, with the same records in the audit log.
//!
//! The pages of a section share one file, as everywhere in the console. Actions that are hard to undo are behind a
//! disclosure that describes their effect.

mod audit;
mod catalog;
mod lockouts;
mod model;
mod models;
mod people;
mod platform;
mod plugins;
mod providers;
mod requests;
pub(super) mod router;
mod swarms;
mod tools;
mod users;
mod vouchers;
mod webhooks;

use axum::extract::{FromRef, State};
use weir_app::App;
use weir_errors::ApiError;
use weir_request::node::Core;
use weir_request::query::ListQuery;

/// Items of a page.
const LIMIT: u32 = 50;

/// Returns the state that most of the API's handlers take.
fn core(app: &App) -> State<Core> {
    State(Core::from_ref(app))
}

/// A list's filters, from the fields of its form, and the position of its page.
struct ListRequest<const N: usize> {
    fields: [(&'static str, String); N],
    part: (&'static str, String),
}

impl<const N: usize> ListRequest<N> {
    /// Takes the fields from a page's query; `part` is the field with a page's position.
    fn take(
        mut query: ListQuery,
        names: [&'static str; N],
        part: &'static str,
    ) -> Result<Self, ApiError> {
        let mut fields = names.map(|name| (name, String::new()));
        for (name, value) in &mut fields {
            *value = query.text(name)?.unwrap_or_default();
        }
        let at = query.text(part)?.unwrap_or_default();
        query.finish()?;
        Ok(Self {
            fields,
            part: (part, at),
        })
    }

    /// The query of the API's list.
    fn query(&self) -> ListQuery {
        let mut query = ListQuery::filled(self.fields.clone());
        query.set("limit", LIMIT.to_string());
        if !self.part.1.is_empty() {
            query.set(self.part.0, self.part.1.clone());
        }
        query
    }

    /// The query of the complete list.
    fn query_of_all(&self) -> ListQuery {
        ListQuery::filled(self.fields.clone())
    }

    fn field(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(found, _)| *found == name);
        found.map_or("", |(_, value)| value)
    }

    /// Returns whether any filter is set.
    fn is_narrow(&self) -> bool {
        self.fields.iter().any(|(_, value)| !value.is_empty())
    }

    /// Returns the address of the next page.
    fn next(&self, path: &str, next: Option<String>) -> Option<String> {
        let next = next?;
        let mut query = self.filled();
        query.append_pair(self.part.0, &next);
        Some(format!("{path}?{}", query.finish()))
    }

    /// Returns the address of the complete list.
    fn all(&self, path: &str) -> String {
        format!("{path}?{}", self.filled().finish())
    }

    fn filled(&self) -> url::form_urlencoded::Serializer<'static, String> {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in &self.fields {
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        query
    }
}
