//! The documents that describe the service (RFC 7644 §4). They need the directory's token, like all others.

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::Kind;
use super::document::{Attribute, EXTERNAL_ID, MEMBERS, Values};
use super::error::ScimError;
use super::resources::{Base, DirectoryRequest, scim};

const KINDS: [Kind; 2] = [Kind::User, Kind::Group];

/// `GET /scim/v2/ServiceProviderConfig`.
pub(super) async fn show_service(request: DirectoryRequest) -> Response {
    let unsupported = json!({ "supported": false });
    let document = json!({
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"],
        "patch": { "supported": true },
        "bulk": { "supported": false, "maxOperations": 0, "maxPayloadSize": 0 },
        "filter": { "supported": true, "maxResults": 100 },
        "changePassword": unsupported,
        "sort": unsupported,
        "etag": unsupported,
        "authenticationSchemes": [{
            "type": "oauthbearertoken",
            "name": "Bearer token",
            "description": "The `scim_token` of the issuer, as a bearer token.",
            "primary": true,
        }],
        "meta": meta(&request.base, "ServiceProviderConfig", ""),
    });
    scim(StatusCode::OK, &document)
}

/// `GET /scim/v2/ResourceTypes`.
pub(super) async fn list_resource_types(request: DirectoryRequest) -> Result<Response, ScimError> {
    list(&request, |kind| resource_type(&request.base, kind))
}

/// `GET /scim/v2/ResourceTypes/{id}`.
pub(super) async fn get_resource_type(
    request: DirectoryRequest,
    Path(id): Path<String>,
) -> Result<Response, ScimError> {
    let found = KINDS.into_iter().find(|kind| kind.resource_type() == id);
    let kind = found.ok_or_else(|| ScimError::not_found("There is no such type of resources."))?;
    Ok(scim(StatusCode::OK, &resource_type(&request.base, kind)))
}

/// `GET /scim/v2/Schemas`.
pub(super) async fn list_schemas(request: DirectoryRequest) -> Result<Response, ScimError> {
    list(&request, |kind| schema(&request.base, kind))
}

/// `GET /scim/v2/Schemas/{id}`.
pub(super) async fn get_schema(
    request: DirectoryRequest,
    Path(id): Path<String>,
) -> Result<Response, ScimError> {
    let found = KINDS.into_iter().find(|kind| kind.schema() == id);
    let kind = found.ok_or_else(|| ScimError::not_found("There is no such schema."))?;
    Ok(scim(StatusCode::OK, &schema(&request.base, kind)))
}

/// Returns all documents of a kind. A client must not believe that a filter applies (RFC 7644 §4).
fn list(
    request: &DirectoryRequest,
    document: impl Fn(Kind) -> Value,
) -> Result<Response, ScimError> {
    let query = request.uri.query().unwrap_or_default();
    if query.split('&').any(|pair| pair.starts_with("filter=")) {
        let what = "These documents cannot be filtered.";
        return Err(ScimError::forbidden(what));
    }
    let documents = KINDS.map(document);
    let list = json!({
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:ListResponse"],
        "totalResults": documents.len(),
        "startIndex": 1,
        "itemsPerPage": documents.len(),
        "Resources": documents,
    });
    Ok(scim(StatusCode::OK, &list))
}

fn resource_type(base: &Base, kind: Kind) -> Value {
    json!({
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:ResourceType"],
        "id": kind.resource_type(),
        "name": kind.resource_type(),
        "endpoint": format!("/{}", kind.path()),
        "schema": kind.schema(),
        "meta": meta(base, "ResourceType", kind.resource_type()),
    })
}

fn schema(base: &Base, kind: Kind) -> Value {
    // The standard defines the identifiers for all schemas.
    let own = kind
        .attributes()
        .iter()
        .filter(|own| own.name != EXTERNAL_ID);
    let mut attributes: Vec<Value> = own.map(|own| attribute(own, kind)).collect();
    if kind == Kind::User {
        let text = |name, description| {
            let mut part = simple(name, "string", description);
            part["mutability"] = Value::from("readOnly");
            part
        };
        let mut groups = simple("groups", "complex", "The groups of the user.");
        groups["multiValued"] = Value::from(true);
        groups["mutability"] = Value::from("readOnly");
        groups["subAttributes"] = json!([
            text("value", "The id of the group."),
            text("display", "The name of the group."),
        ]);
        attributes.push(groups);
    }
    json!({
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:Schema"],
        "id": kind.schema(),
        "name": kind.resource_type(),
        "description": format!("The attributes of a {} that weir keeps.", kind.name()),
        "attributes": attributes,
        "meta": meta(base, "Schema", kind.schema()),
    })
}

fn attribute(attribute: &Attribute, kind: Kind) -> Value {
    let parts = |parts: &'static [Attribute]| -> Value {
        parts
            .iter()
            .map(|part| self::attribute(part, kind))
            .collect()
    };
    let (name, description) = (attribute.name, attribute.description);
    let mut document = match &attribute.values {
        Values::Text => simple(name, "string", description),
        Values::Boolean => simple(name, "boolean", description),
        Values::Complex(of) => {
            let mut document = simple(name, "complex", description);
            document["subAttributes"] = parts(of);
            document
        }
        Values::List(of, _) => {
            let mut document = simple(name, "complex", description);
            document["multiValued"] = Value::from(true);
            document["subAttributes"] = parts(of);
            document
        }
    };
    document["required"] = Value::from(attribute.is_required);
    if kind == Kind::User && name == kind.name_attribute() {
        document["uniqueness"] = Value::from("server");
    }
    if name == MEMBERS
        && let Some(Value::Array(parts)) = document.get_mut("subAttributes")
    {
        let mut location = simple("$ref", "reference", "The location of the user.");
        location["referenceTypes"] = json!(["User"]);
        let mut kind = simple("type", "string", "The type of the member.");
        kind["canonicalValues"] = json!(["User"]);
        parts.extend([location, kind]);
        // A member is added or removed, and never changed.
        for part in parts {
            part["mutability"] = Value::from("immutable");
        }
    }
    document
}

fn simple(name: &str, kind: &str, description: &str) -> Value {
    json!({
        "name": name,
        "type": kind,
        "multiValued": false,
        "description": description,
        "required": false,
        "caseExact": false,
        "mutability": "readWrite",
        "returned": "default",
        "uniqueness": "none",
    })
}

fn meta(base: &Base, resource_type: &str, id: &str) -> Value {
    let path = match resource_type {
        "ServiceProviderConfig" => resource_type.to_owned(),
        _ => format!("{resource_type}s"),
    };
    let location = base.location(&path, id);
    json!({ "resourceType": resource_type, "location": location.trim_end_matches('/') })
}
