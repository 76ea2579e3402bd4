//! The endpoints of vendors' APIs under `/v1` and `/v1beta`, except Chat Completions, which weir's own endpoints speak, too.
//!
//! [`weir_dialects`] reads their requests and writes their responses.

pub mod audio;
pub mod completions;
pub mod gemini;
pub mod images;
pub mod messages;
pub mod models;
pub mod responses;
pub mod retrieval;

use std::sync::Arc;

use axum::extract::FromRef;
use weir_identity::endpoints::{Access, Endpoints, Tenancy};
use weir_identity::roles::Permission;
use weir_identity::{IdentityParts, handlers};
use weir_request::request::BodyReader;

use crate::InferenceParts;

/// Returns the endpoints of vendors' APIs.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<InferenceParts>: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
    BodyReader: FromRef<S>,
{
    Endpoints::new()
        .row(
            Access::User(Permission::Infer),
            handlers!(
                completions::create_completion,
                responses::create_response,
                messages::create_message,
                images::create_image,
                images::create_image_edit,
                audio::create_speech,
                audio::create_transcription,
                audio::create_translation
            ),
        )
        .merge(retrieval::endpoints())
        .row(
            Access::User(Permission::Infer),
            handlers!(messages::count_tokens, gemini::generate_content).tenancy(Tenancy::Common),
        )
        .row(
            Access::User(Permission::Infer),
            handlers!(gemini::generate_content)
                .at("/v1/models/{*id}", "generate_v1_content")
                .tenancy(Tenancy::Common),
        )
        .row(
            Access::User(Permission::ListModels),
            handlers!(
                models::list_models,
                models::get_model,
                gemini::list_models,
                gemini::get_model
            )
            .tenancy(Tenancy::Common),
        )
}
