//! SCIM 2.0 (RFC 7643, RFC 7644): an issuer's directory creates, changes and disables the people who sign in there, and
//! sends their groups, which grant roles.
//!
//! - [`router`]: the routes, below `/scim/v2`.
//! - [`resources`]: the requests for users and groups.
//! - [`document`]: the attributes that weir keeps, and [`patch`], which changes them.
//! - [`query`]: filters, pages and the selection of attributes.
//! - [`store`]: the tables.
//! - [`discovery`]: the documents that describe the service.
//!
//! The directory proves itself with `scim_token` of its issuer, and reaches only the users and groups that it created. A
//! directory's user is the person whom the issuer's tokens name by `externalId`, or by `userName` if there is none.
//!
//! The OpenAPI document leaves these routes out, because the standard defines them.
//!
//! **Invariant:** a directory changes nothing that an operator or a member did: it enables no user whom an operator
//! disabled, and takes no role that a person granted ([`crate::groups`]). **Invariant:** e-mail addresses of a
//! directory accept no invitation, because only a token says that the issuer verified the address.

mod discovery;
mod document;
mod error;
mod patch;
mod query;
mod resources;
pub mod router;
mod store;

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use http::request::Parts;

use self::error::ScimError;
use crate::IdentityParts;
use crate::directory_token::find_directory;
use crate::settings::SignInSettings;

/// An issuer's directory, by its token.
struct Directory {
    settings: SignInSettings,
    identity: Arc<IdentityParts>,
}

impl<S> FromRequestParts<S> for Directory
where
    Arc<IdentityParts>: FromRef<S>,
    S: Sync,
{
    type Rejection = ScimError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ScimError> {
        let identity = Arc::<IdentityParts>::from_ref(state);
        let settings = find_directory(parts, &identity).await?.clone();
        Ok(Self { settings, identity })
    }
}

/// A kind of resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    User,
    Group,
}

impl Kind {
    /// Its name in the database.
    const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
        }
    }

    /// Its name in the protocol.
    const fn resource_type(self) -> &'static str {
        match self {
            Self::User => "User",
            Self::Group => "Group",
        }
    }

    /// Its schema.
    const fn schema(self) -> &'static str {
        match self {
            Self::User => "urn:ietf:params:scim:schemas:core:2.0:User",
            Self::Group => "urn:ietf:params:scim:schemas:core:2.0:Group",
        }
    }

    /// The last part of the path of its resources.
    const fn path(self) -> &'static str {
        match self {
            Self::User => "Users",
            Self::Group => "Groups",
        }
    }
}
