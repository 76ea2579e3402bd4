//! `/admin/lockouts`: addresses that are locked out after failed authentications. For administrators.

use std::net::IpAddr;

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::admin::AdminCaller;
use weir_identity::lockout;
use weir_request::node::Core;
use weir_request::query::ListQuery;
use weir_request::schemas::parameters::Limit;
use weir_storage::clock::Millis;

/// A locked-out address.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LockoutItem {
    /// The client's address; for an IPv6 client, its network of 64 bits.
    pub address: String,
    /// Failures before the lockout, plus requests that weir rejected since.
    pub failures: u32,
    /// The end of the lockout, in ISO 8601.
    pub until: String,
}

/// Locked-out addresses.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LockoutList {
    /// The lockouts, longest remaining first.
    pub lockouts: Vec<LockoutItem>,
}

/// `GET /admin/lockouts`: lists the locked-out addresses.
#[utoipa::path(
    get, path = "/admin/lockouts", tag = "administration",
    params(
        Limit,
    ),
    responses((status = 200, body = LockoutList)),
)]
pub async fn list_lockouts(
    State(core): State<Core>,
    _: AdminCaller,
    mut query: ListQuery,
) -> Result<Json<LockoutList>, ApiError> {
    let limit = query.limit()?;
    query.finish()?;
    let now = core.clock.now();
    let lockouts = lockout::list(&core, limit as usize).await?;
    let lockouts = lockouts.into_iter().map(|lockout| LockoutItem {
        address: lockout.address,
        failures: lockout.failures,
        until: Millis(now.0 + lockout.left.as_millis() as i64).iso(),
    });
    Ok(Json(LockoutList {
        lockouts: lockouts.collect(),
    }))
}

/// `DELETE /admin/lockouts/{address}`: ends an address's lockout.
#[utoipa::path(
    delete, path = "/admin/lockouts/{address}", tag = "administration",
    params(("address" = String, Path, description = "An IP address, such as `203.0.113.7`.")),
    responses(
        (status = 204, description = "The lockout is ended."),
        (status = 404, description = "`NOT_FOUND`: this address is not locked out."),
    ),
)]
pub async fn clear_lockout(
    State(core): State<Core>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(address): Path<String>,
) -> Result<StatusCode, ApiError> {
    let address: IpAddr = address.parse().map_err(|_| {
        ApiError::invalid_request(
            "address",
            "`address` must be an IP address, such as 203.0.113.7.",
        )
    })?;
    match lockout::clear(&core, address, &actor).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(
            ApiError::new(ErrorCode::NotFound, "This address is not locked out.")
                .with_param("address"),
        ),
    }
}
