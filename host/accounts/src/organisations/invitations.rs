//! Invitations to an organisation: `/organisations/{organisation_id}/invitations` and `/invitations/accept`.
//!
//! weir sends no e-mail. The member who invites passes the link on. It holds a code of 32 random bytes in the fragment
//! of its URL, which browsers do not send and proxies do not log. The database has only the SHA-256 of the code. The code
//! alone is not enough: the issuer must have verified the invited e-mail address for the user who accepts.

use axum::Json;
use axum::extract::{Path, State};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::WebCaller;
use weir_identity::roles::Role;
use weir_identity::store::find_user;
use weir_request::small_body::SmallBody;
use weir_storage::secrets::random_bytes;

use super::store::{self, Acceptance, InvitationItem, MAX_INVITATIONS, MAX_MEMBERS, NewInvitation};
use super::{MemberCaller, OrganisationParts, failed, too_many};

/// Days until an invitation expires: the default and the maximum.
pub const DAYS: i64 = 7;
const MAX_DAYS: i64 = 30;

const PREFIX: &str = "winv_";

/// The page that accepts a code. The code is its fragment.
pub const PAGE: &str = "/console/organisations";

/// The body that creates an invitation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InvitationRequest {
    /// The e-mail address that the new member's issuer has verified.
    #[schema(max_length = 254)]
    #[schema(
        max_length = 254,
        pattern = r"^[^@\s\u0000-\u001f\u007f-\u009f]+@[^\s\u0000-\u001f\u007f-\u009f]+$"
    )]
    email: String,
    /// The role of the new member; not `owner`.
    role: Role,
    /// Days until the invitation expires.
    #[serde(default = "days")]
    #[schema(minimum = 1, maximum = 30, default = 7)]
    expires_in_days: i64,
}

fn days() -> i64 {
    DAYS
}

/// A new invitation.
#[derive(Debug, Serialize, ToSchema)]
pub struct CreatedInvitation {
    /// The invitation's id.
    pub invitation_id: String,
    /// The code, only in this response.
    pub code: String,
    /// Path of the console's page for the invited person, with the code in its fragment.
    pub path: String,
    /// Expiry.
    pub expires_at: String,
}

/// The open invitations of an organisation.
#[derive(Serialize, ToSchema)]
struct InvitationList {
    /// Invitations, oldest first.
    invitations: Vec<InvitationItem>,
}

/// The body that accepts an invitation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptRequest {
    /// The invitation's code.
    code: String,
}

/// A new membership.
#[derive(Debug, Serialize, ToSchema)]
pub struct JoinedOrganisation {
    /// The organisation's id.
    pub organisation_id: String,
    /// The caller's role.
    pub role: Role,
}

/// `POST /organisations/{organisation_id}/invitations`: invites a person. A new invitation replaces an open one for the
/// same address.
#[utoipa::path(
    post, path = "/organisations/{organisation_id}/invitations", tag = "organisations",
    params(("organisation_id" = String, Path, description = "The organisation's id.")),
    request_body = InvitationRequest,
    responses(
        (status = 201, description = "The invitation. Only this response has its `code`.", body = CreatedInvitation),
        (status = 404, description = "`NOT_FOUND`: you are not a member."),
        (status = 429, description = "`ORGANISATION_LIMIT_REACHED`: an organisation has at most 100 open invitations."),
    ),
)]
pub async fn create_invitation(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
    SmallBody(asked): SmallBody<InvitationRequest>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let days = asked.expires_in_days;
    let created = invite(&parts, &caller, &asked.email, asked.role, days).await?;
    Ok((StatusCode::CREATED, Json(json!(created))))
}

/// Invites a person.
///
/// # Errors
///
/// 400 that names the invalid field, 429 if the organisation has too many open invitations.
pub async fn invite(
    parts: &OrganisationParts,
    caller: &MemberCaller,
    email: &str,
    role: Role,
    days: i64,
) -> Result<CreatedInvitation, ApiError> {
    let email = read_email(email)?;
    if role == Role::Owner {
        let what = "Invite with another role, then transfer the ownership.";
        return Err(ApiError::invalid_request("role", what));
    }
    if !(1..=MAX_DAYS).contains(&days) {
        let what = format!("It is a whole number from 1 to {MAX_DAYS}.");
        return Err(ApiError::invalid_request("expires_in_days", what));
    }
    let code = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random_bytes::<32>()));
    let now = parts.core.clock.now();
    let new = NewInvitation {
        organisation_id: &caller.organisation_id,
        email: &email,
        role,
        code_hash: hash(&code),
        invited_by: &caller.user_id,
        now,
        expires_at: now.plus_days(days),
    };
    let id = store::invite(&parts.core.database, &new)
        .await
        .map_err(failed)?;
    let invitation_id = id.ok_or_else(|| {
        let most = MAX_INVITATIONS;
        too_many(format!(
            "An organisation has at most {most} open invitations."
        ))
    })?;
    caller.record(&parts.core, "invitation.created", &*invitation_id);
    Ok(CreatedInvitation {
        invitation_id,
        path: format!("{PAGE}#{code}"),
        code,
        expires_at: new.expires_at.iso(),
    })
}

/// `GET /organisations/{organisation_id}/invitations`: lists the open invitations.
#[utoipa::path(
    get, path = "/organisations/{organisation_id}/invitations", tag = "organisations",
    params(("organisation_id" = String, Path, description = "The organisation's id.")),
    responses((status = 200, body = InvitationList), (status = 404, description = "`NOT_FOUND`: you are not a member.")),
)]
pub async fn list_invitations(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
) -> Result<Json<Value>, ApiError> {
    let (database, now) = (&parts.core.database, parts.core.clock.now());
    let found = store::find_invitations(database, &caller.organisation_id, now).await;
    let invitations = found.map_err(failed)?;
    Ok(Json(json!(InvitationList { invitations })))
}

/// `DELETE /organisations/{organisation_id}/invitations/{invitation_id}`: revokes an open invitation.
#[utoipa::path(
    delete, path = "/organisations/{organisation_id}/invitations/{invitation_id}", tag = "organisations",
    params(
        ("organisation_id" = String, Path, description = "The organisation's id."),
        ("invitation_id" = String, Path, description = "The invitation's id."),
    ),
    responses(
        (status = 204, description = "The invitation is revoked."),
        (status = 404, description = "`NOT_FOUND`: there is no open invitation with this id."),
    ),
)]
pub async fn revoke_invitation(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
    Path((_, invitation_id)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    revoke(&parts, &caller, &invitation_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Revokes an open invitation.
pub async fn revoke(
    parts: &OrganisationParts,
    caller: &MemberCaller,
    invitation_id: &str,
) -> Result<(), ApiError> {
    let (database, now) = (&parts.core.database, parts.core.clock.now());
    let id = &caller.organisation_id;
    let revoked = store::revoke_invitation(database, id, invitation_id, now).await;
    if !revoked.map_err(failed)? {
        let what = "The organisation has no open invitation with this id.";
        return Err(ApiError::new(ErrorCode::NotFound, what).with_param("invitation_id"));
    }
    caller.record(&parts.core, "invitation.revoked", invitation_id);
    Ok(())
}

/// `POST /invitations/accept`: joins an organisation. The caller's issuer must have verified the invited e-mail address.
#[utoipa::path(
    post, path = "/invitations/accept", tag = "organisations",
    request_body = AcceptRequest,
    responses(
        (status = 200, body = JoinedOrganisation),
        (status = 403, description = "`INVITATION_FOR_ANOTHER`: your issuer has not verified the invited e-mail address."),
        (status = 404, description = "`INVITATION_INVALID`: the code is unknown, used, revoked or expired."),
        (status = 409, description = "`ALREADY_MEMBER`: you are a member."),
    ),
)]
pub async fn accept_invitation(
    State(parts): State<OrganisationParts>,
    caller: WebCaller,
    SmallBody(AcceptRequest { code }): SmallBody<AcceptRequest>,
) -> Result<Json<Value>, ApiError> {
    let joined = accept(&parts, &caller.user_id, &code).await?;
    Ok(Json(json!(joined)))
}

/// Makes a user a member of the organisation that has invited them.
///
/// # Errors
///
/// 403, 404, 409 and 429, as the endpoint's documentation says.
pub async fn accept(
    parts: &OrganisationParts,
    user_id: &str,
    code: &str,
) -> Result<JoinedOrganisation, ApiError> {
    let (database, now) = (&parts.core.database, parts.core.clock.now());
    let user = find_user(database, user_id).await.map_err(failed)?;
    let email = user.and_then(|user| user.email);
    let accepted = store::accept_invitation(database, hash(code), user_id, email.as_deref(), now);
    let refused = |code, what: &str| Err(ApiError::new(code, what).with_no_retry());
    match accepted.await.map_err(failed)? {
        Acceptance::Joined {
            organisation_id,
            role,
        } => {
            let member = MemberCaller {
                organisation_id,
                user_id: user_id.to_owned(),
                role,
            };
            let subject = format!("{user_id}: {}", role.name());
            member.record(&parts.core, "member.joined", subject);
            Ok(JoinedOrganisation {
                organisation_id: member.organisation_id,
                role,
            })
        }
        Acceptance::Invalid => refused(
            ErrorCode::InvitationInvalid,
            "This invitation is unknown, used, revoked or expired; ask for a new one.",
        ),
        Acceptance::OtherEmail => refused(
            ErrorCode::InvitationForAnother,
            "This invitation is for an e-mail address that your issuer has not verified for you.",
        ),
        Acceptance::AlreadyMember => refused(
            ErrorCode::AlreadyMember,
            "You are a member of this organisation already.",
        ),
        Acceptance::Full => Err(too_many(format!(
            "An organisation has at most {MAX_MEMBERS} members."
        ))),
    }
}

fn hash(code: &str) -> Vec<u8> {
    Sha256::digest(code).to_vec()
}

/// Reads an e-mail address, in lower case. The issuer verifies it, so the form alone is checked.
fn read_email(email: &str) -> Result<String, ApiError> {
    let is_legal = email.chars().count() <= 254
        && email
            .split_once('@')
            .is_some_and(|(name, host)| !name.is_empty() && !host.is_empty())
        && !email.contains(|letter: char| letter.is_whitespace() || letter.is_control());
    if is_legal {
        return Ok(email.to_lowercase());
    }
    let what = "It is an e-mail address of at most 254 characters.";
    Err(ApiError::invalid_request("email", what))
}
