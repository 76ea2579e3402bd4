//! The names of people and organisations, for lists that have only their ids.

use std::collections::HashMap;

use weir_app::App;
use weir_errors::ApiError;

use crate::admin::account_names;
use crate::console::format;

/// Names of users, by their ids.
pub(super) struct People(HashMap<String, String>);

/// A person, an organisation or a program in a list.
pub(super) struct ShownActor {
    /// The name, or else the id.
    pub(super) name: String,
    /// The address of the user's page, if it is a user.
    pub(super) path: Option<String>,
}

impl People {
    /// Reads the names of actors and users.
    pub(super) async fn of<'a>(
        app: &App,
        actors: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, ApiError> {
        let ids: Vec<_> = actors.into_iter().map(user_of).collect();
        let names = account_names(&app.database, &ids).await;
        let names = names.map_err(|error| ApiError::of_database(&error, "asked for names"))?;
        Ok(Self(names))
    }

    /// Returns an actor of an audit event, such as `user:usr_1` or `local:0`.
    pub(super) fn actor(&self, actor: &str) -> ShownActor {
        match actor.split_once(':') {
            Some(("user", id)) => self.user(id),
            Some(("local", uid)) => ShownActor {
                name: format!("command line, as the system’s user {uid}"),
                path: None,
            },
            _ => ShownActor {
                name: actor.to_owned(),
                path: None,
            },
        }
    }

    pub(super) fn user(&self, id: &str) -> ShownActor {
        ShownActor {
            name: self.0.get(id).map_or(id, String::as_str).to_owned(),
            path: Some(format!("/console/admin/users/{}", format::segment(id))),
        }
    }
}

fn user_of(actor: &str) -> &str {
    actor.strip_prefix("user:").unwrap_or(actor)
}
