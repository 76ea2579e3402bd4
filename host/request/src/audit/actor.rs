//! Actors, as events name them.

use std::fmt;

/// An actor: `user:usr_…`, `service:E-MAIL`, `issuer:URL`, or `local:UID` for a user of the admin socket or of a command.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Actor(String);

impl Actor {
    pub fn user(user_id: &str) -> Self {
        Self(format!("user:{user_id}"))
    }

    /// Another service.
    pub fn service(name: &str) -> Self {
        Self(format!("service:{name}"))
    }

    /// An issuer whose groups grant roles.
    pub fn issuer(issuer: &str) -> Self {
        Self(format!("issuer:{issuer}"))
    }

    /// A user of this machine, by the uid.
    pub fn local(uid: u32) -> Self {
        Self(format!("local:{uid}"))
    }

    /// The user of this process.
    pub fn myself() -> Self {
        Self::local(rustix::process::getuid().as_raw())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
