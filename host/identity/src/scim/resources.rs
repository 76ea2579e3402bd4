//! The requests for users and groups (RFC 7644 §3).

use std::collections::BTreeSet;

use axum::extract::{FromRequest, Path, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use serde_json::{Map, Value, json};
use weir_request::audit::Actor;
use weir_request::small_body;

use super::document::{self, Document, EXTERNAL_ID, MEMBERS, is_active, members, shown_name, text};
use super::error::{CONTENT_TYPE, ScimError};
use super::patch::Patch;
use super::query::{Query, Selection};
use super::store::{self, Resource, Stored};
use super::{Directory, Kind};
use crate::IdentityParts;
use crate::groups::apply_of_directory;
use crate::store::set_name;
use crate::users::set_disabled_by_directory;

/// The maximum bytes of a body: a group with all its members.
const MAX_BYTES: usize = 1 << 20;

/// The body of a request.
pub(super) struct Body(Bytes);

impl<S: Sync> FromRequest<S> for Body {
    type Rejection = ScimError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ScimError> {
        Ok(Self(small_body::read(request, MAX_BYTES).await?))
    }
}

/// The address of the service, as the directory knows it. Locations in documents begin with it.
pub(super) struct Base(String);

impl Base {
    pub(super) fn new(identity: &IdentityParts, headers: &HeaderMap) -> Self {
        let host = headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok());
        // Outside development mode, a proxy encrypts if weir does not.
        let scheme = if identity.is_dev { "http" } else { "https" };
        Self(format!(
            "{scheme}://{}/scim/v2",
            host.unwrap_or("localhost")
        ))
    }

    pub(super) fn location(&self, path: &str, id: &str) -> String {
        format!("{}/{path}/{id}", self.0)
    }
}

/// A request of a directory.
pub(super) struct DirectoryRequest {
    pub(super) directory: Directory,
    pub(super) base: Base,
    pub(super) uri: Uri,
}

/// `GET` at the list of users or groups: a page of resources.
pub(super) async fn list(kind: Kind, request: DirectoryRequest) -> Result<Response, ScimError> {
    let query = Query::read(kind, &request.uri)?;
    let (database, issuer) = (&request.directory.identity.database, request.issuer());
    let lookup = query.filter.as_ref();
    let total = store::count(database, issuer, kind, lookup).await;
    let total = total.map_err(ScimError::database)?;
    let (skipped, count) = (query.start - 1, query.count);
    let found = store::list(database, issuer, kind, lookup, skipped, count).await;
    let mut shown = Vec::new();
    for resource in found.map_err(ScimError::database)? {
        shown.push(request.show(kind, resource, &query.selection).await?);
    }
    let list = json!({
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:ListResponse"],
        "totalResults": total,
        "startIndex": query.start,
        "itemsPerPage": shown.len(),
        "Resources": shown,
    });
    Ok(scim(StatusCode::OK, &list))
}

/// `GET` at a user or a group.
pub(super) async fn get(
    kind: Kind,
    request: DirectoryRequest,
    Path(id): Path<String>,
) -> Result<Response, ScimError> {
    let query = Query::read(kind, &request.uri)?;
    let database = &request.directory.identity.database;
    let found = store::find(database, request.issuer(), kind, &id).await;
    let resource = found.map_err(ScimError::database)?.ok_or_else(unknown)?;
    let shown = request.show(kind, resource, &query.selection).await?;
    Ok(scim(StatusCode::OK, &shown))
}

/// `POST` at the list of users or groups.
pub(super) async fn create(
    kind: Kind,
    request: DirectoryRequest,
    Body(body): Body,
) -> Result<Response, ScimError> {
    let query = Query::read(kind, &request.uri)?;
    let mut document = document::read(kind, &body)?;
    if kind == Kind::User {
        document.entry("active").or_insert(Value::Bool(true));
    }
    let identity = &request.directory.identity;
    let (database, now) = (&identity.database, identity.clock.now());
    let created = store::create(database, request.issuer(), kind, document.clone(), now).await;
    let resource = done(kind, created)?;
    request
        .take_effect(kind, &resource.id, &Document::new(), &document)
        .await?;
    let location = request.base.location(kind.path(), &resource.id);
    let shown = request.show(kind, resource, &query.selection).await?;
    let mut response = scim(StatusCode::CREATED, &shown);
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// `PUT` at a user or a group: replaces all attributes. A missing `active` stays as it is, so that no user is
/// enabled by mistake.
pub(super) async fn replace(
    kind: Kind,
    request: DirectoryRequest,
    id: Path<String>,
    Body(body): Body,
) -> Result<Response, ScimError> {
    let mut document = document::read(kind, &body)?;
    let change = |before: Document| {
        if let (Kind::User, false, Some(active)) =
            (kind, document.contains_key("active"), before.get("active"))
        {
            document.insert("active".to_owned(), active.clone());
        }
        Ok(document)
    };
    request.change(kind, id, change).await
}

/// `PATCH` at a user or a group.
pub(super) async fn patch(
    kind: Kind,
    request: DirectoryRequest,
    id: Path<String>,
    Body(body): Body,
) -> Result<Response, ScimError> {
    let patch = Patch::read(&body)?;
    let change = |before: Document| patch.apply(kind, before);
    request.change(kind, id, change).await
}

/// `DELETE` at a user or a group. weir disables a deleted user, whose account stays.
pub(super) async fn delete(
    kind: Kind,
    request: DirectoryRequest,
    Path(id): Path<String>,
) -> Result<StatusCode, ScimError> {
    let Directory { settings, identity } = &request.directory;
    let (database, issuer) = (&identity.database, request.issuer());
    if kind == Kind::User {
        let found = store::find(database, issuer, kind, &id).await;
        found.map_err(ScimError::database)?.ok_or_else(unknown)?;
        // Before the deletion, whose repeat would find no user.
        set_disabled_by_directory(identity, &id, true, &request.actor()).await?;
    }
    let change = store::begin_change(database, issuer, kind, &id).await;
    let change = change.map_err(ScimError::database)?.ok_or_else(unknown)?;
    let before = change.before.document.clone();
    change.delete().await.map_err(ScimError::database)?;
    match kind {
        Kind::User => apply_of_directory(identity, &id, settings).await?,
        Kind::Group => {
            request
                .take_effect(kind, &id, &before, &Document::new())
                .await?
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

impl DirectoryRequest {
    fn issuer(&self) -> &str {
        &self.directory.settings.issuer
    }

    fn actor(&self) -> Actor {
        Actor::issuer(self.issuer())
    }

    /// Changes a resource, under its lock.
    async fn change(
        &self,
        kind: Kind,
        Path(id): Path<String>,
        change: impl FnOnce(Document) -> Result<Document, ScimError>,
    ) -> Result<Response, ScimError> {
        let query = Query::read(kind, &self.uri)?;
        let identity = &self.directory.identity;
        let (database, now) = (&identity.database, identity.clock.now());
        let begun = store::begin_change(database, self.issuer(), kind, &id).await;
        let begun = begun.map_err(ScimError::database)?.ok_or_else(unknown)?;
        let before = begun.before.document.clone();
        let document = change(before.clone())?;
        let resource = done(kind, begun.store(document.clone(), now).await)?;
        self.take_effect(kind, &id, &before, &document).await?;
        let shown = self.show(kind, resource, &query.selection).await?;
        Ok(scim(StatusCode::OK, &shown))
    }

    /// Applies a change to the user, or to the roles of a group's users. A repeat of the request completes an interrupted
    /// change.
    async fn take_effect(
        &self,
        kind: Kind,
        id: &str,
        before: &Document,
        after: &Document,
    ) -> Result<(), ScimError> {
        let Directory { settings, identity } = &self.directory;
        match kind {
            Kind::User => {
                let name = shown_name(after);
                let set = set_name(&identity.database, id, name.as_deref()).await;
                set.map_err(ScimError::database)?;
                let by = self.actor();
                set_disabled_by_directory(identity, id, !is_active(after), &by).await?;
            }
            Kind::Group => {
                let names = [before, after].map(|document| text(document, "displayName"));
                let grants = names.iter().flatten().any(|name| settings.has_group(name));
                let users: BTreeSet<String> = match grants {
                    true if names[0] == names[1] => {
                        let (before, after) = (members(before), members(after));
                        before.symmetric_difference(&after).cloned().collect()
                    }
                    true => members(before).union(&members(after)).cloned().collect(),
                    false => BTreeSet::new(),
                };
                for user_id in &users {
                    apply_of_directory(identity, user_id, settings).await?;
                }
            }
        }
        Ok(())
    }

    /// Returns the document of a resource, with the attributes that a request wants.
    async fn show(
        &self,
        kind: Kind,
        resource: Resource,
        selection: &Selection,
    ) -> Result<Value, ScimError> {
        let database = &self.directory.identity.database;
        let mut document = Map::new();
        document.insert("schemas".to_owned(), json!([kind.schema()]));
        document.insert("id".to_owned(), json!(resource.id));
        document.extend(resource.document);
        match kind {
            Kind::Group if selection.includes(MEMBERS) => {
                let members = store::find_members(database, &resource.id).await;
                let members = members.map_err(ScimError::database)?;
                let members = members.into_iter().map(|mut member| {
                    let id = member["value"].as_str().unwrap_or_default();
                    let location = self.base.location(Kind::User.path(), id);
                    member["$ref"] = Value::from(location);
                    member["type"] = Value::from("User");
                    member
                });
                let members: Vec<Value> = members.collect();
                if !members.is_empty() {
                    document.insert(MEMBERS.to_owned(), members.into());
                }
            }
            Kind::User if selection.includes("groups") => {
                let groups = store::find_groups(database, &resource.id).await;
                let groups = groups.map_err(ScimError::database)?;
                if !groups.is_empty() {
                    document.insert("groups".to_owned(), groups.into());
                }
            }
            Kind::User | Kind::Group => {}
        }
        let meta = json!({
            "resourceType": kind.resource_type(),
            "created": resource.created_at.iso(),
            "lastModified": resource.updated_at.iso(),
            "location": self.base.location(kind.path(), &resource.id),
        });
        document.insert("meta".to_owned(), meta);
        Ok(selection.apply(document))
    }
}

fn done(kind: Kind, stored: sqlx::Result<Stored<Resource>>) -> Result<Resource, ScimError> {
    match stored.map_err(ScimError::database)? {
        Stored::Done(resource) => Ok(resource),
        Stored::NameTaken => Err(ScimError::taken(kind.name_attribute())),
        Stored::SubjectTaken => Err(ScimError::taken(EXTERNAL_ID)),
        Stored::UnknownMember => {
            let what = "A member is a user of this directory, by its id.";
            Err(ScimError::value("members.value", what))
        }
    }
}

fn unknown() -> ScimError {
    ScimError::not_found("The directory has no resource with this id.")
}

/// Returns a response with a document.
pub(super) fn scim(status: StatusCode, document: &Value) -> Response {
    let mut response = (status, document.to_string()).into_response();
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, CONTENT_TYPE);
    response
}
