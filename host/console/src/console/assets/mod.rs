//! The console's files: its stylesheet and scripts, htmx, and uPlot. Each path contains the file's digest, so that browsers
//! may cache it for ever.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use sha2::{Digest, Sha256};
use weir_app::request_layer::PermanentResponse;
use weir_errors::{ApiError, ErrorCode};
use weir_storage::ids::Hex;

const STYLE: &str = include_str!("console.css");
const SCRIPT: &str = include_str!("console.js");
const DOCS: &str = include_str!("docs.js");
const PLAYGROUND: &str = include_str!("playground.js");
/// htmx 2.0.11, unchanged; its licence is beside it.
const HTMX: &str = include_str!("htmx.min.js");
const PLOTS: &str = include_str!("plots.js");
/// uPlot 1.6.32, `dist/uPlot.iife.min.js` and `dist/uPlot.min.css` unchanged; its licence is beside them.
const UPLOT: &str = include_str!("uplot.min.js");
const PLOT_STYLE: &str = include_str!("uplot.min.css");

static ASSETS: LazyLock<Assets> = LazyLock::new(|| Assets {
    style: Asset::new("console", "css", STYLE),
    script: Asset::new("console", "js", SCRIPT),
    docs: Asset::new("docs", "js", DOCS),
    playground: Asset::new("playground", "js", PLAYGROUND),
    htmx: Asset::new("htmx", "js", HTMX),
    plots: Asset::new("plots", "js", PLOTS),
    uplot: Asset::new("uplot", "js", UPLOT),
    plot_style: Asset::new("uplot", "css", PLOT_STYLE),
});

/// The console's files.
pub(super) struct Assets {
    pub(super) style: Asset,
    pub(super) script: Asset,
    pub(super) docs: Asset,
    pub(super) playground: Asset,
    pub(super) htmx: Asset,
    /// Draws charts.
    pub(super) plots: Asset,
    pub(super) uplot: Asset,
    pub(super) plot_style: Asset,
}

/// A file with its media type and digest.
pub(super) struct Asset {
    name: String,
    media_type: &'static str,
    text: &'static str,
}

pub(super) fn all() -> &'static Assets {
    &ASSETS
}

impl Asset {
    fn new(name: &str, ending: &str, text: &'static str) -> Self {
        let digest = Sha256::digest(text.as_bytes());
        let digest = Hex(&digest[..8]).to_string();
        Self {
            name: format!("{name}.{digest}.{ending}"),
            media_type: match ending {
                "css" => "text/css; charset=utf-8",
                _ => "text/javascript; charset=utf-8",
            },
            text,
        }
    }

    /// Returns the file's path.
    pub(super) fn path(&self) -> String {
        format!("/console/assets/{}", self.name)
    }
}

/// `GET /console/assets/{name}`: returns a file.
pub(super) async fn get_asset(Path(name): Path<String>) -> Result<Response, ApiError> {
    let Assets {
        style,
        script,
        docs,
        playground,
        htmx,
        plots,
        uplot,
        plot_style,
    } = all();
    let found = [
        style, script, docs, playground, htmx, plots, uplot, plot_style,
    ]
    .into_iter()
    .find(|asset| asset.name == name);
    let asset = found.ok_or_else(|| {
        let what = "This file does not exist; it may belong to another version of weir.";
        ApiError::new(ErrorCode::NotFound, what)
    })?;
    let media_type = HeaderValue::from_static(asset.media_type);
    let mut response = ([(header::CONTENT_TYPE, media_type)], asset.text).into_response();
    response.extensions_mut().insert(PermanentResponse);
    Ok(response)
}
