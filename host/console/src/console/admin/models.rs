//! The active catalog: models, their providers and prices, and this month's revenue of each.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value};
use weir_app::App;
use weir_catalog::listing::{
    CatalogListing, ListedGap, ListedProvider, ListedUpstream, units_of_price,
};
use weir_errors::ApiError;

use crate::admin::report::{ModelEconomics, Month};
use crate::admin::routes;
use crate::console::format;
use crate::console::frame::{Frame, MODELS};
use crate::console::session::ConsoleAdmin;

#[derive(Template)]
#[template(path = "console/admin/models.html")]
struct ModelsPage {
    frame: Frame,
    models: Vec<ConsoleModel>,
    economics: Vec<ModelEconomics>,
    /// Warnings about models that have ended or end soon.
    ends: Vec<String>,
    left_out: Vec<ListedGap>,
    providers: Vec<ListedProvider>,
    /// Models that are disabled or without a provider.
    others: Vec<String>,
    problem: Option<String>,
    text_factor: f64,
    image_factor: f64,
}

struct ConsoleModel {
    id: String,
    served: bool,
    aliases: Vec<String>,
    context_window: u32,
    upstreams: Vec<ServedUpstream>,
}

struct ServedUpstream {
    provider: String,
    model: String,
    price: String,
}

/// `GET /console/admin/models`
pub(super) async fn show_models(
    State(app): State<App>,
    admin: ConsoleAdmin,
) -> Result<Response, ApiError> {
    let catalog = app.catalog.load();
    let listing = CatalogListing::of(&catalog);
    let now = app.clock.now();
    let ends = catalog.models().filter_map(|model| model.end_warning(now));
    let economics = routes::model_economics(&app, &Month::of(now)).await?;
    let status = app.layers.status().await;
    let is_listed = |id: &str| listing.models.iter().any(|model| model.id == id);
    let others = status.models.keys().filter(|id| !is_listed(id));
    let others = others.cloned().collect();
    let models = listing.models.into_iter().map(|model| ConsoleModel {
        id: model.id,
        served: model.served,
        aliases: model.aliases,
        context_window: model.context_window,
        upstreams: model.upstreams.into_iter().map(served).collect(),
    });
    let page = ModelsPage {
        frame: admin.user.frame("Models", MODELS),
        models: models.collect(),
        economics,
        ends: ends.collect(),
        left_out: listing.left_out,
        providers: listing.providers,
        others,
        problem: status.problem,
        text_factor: listing.price_factors.text,
        image_factor: listing.price_factors.image,
    };
    admin.user.show(&page)
}

/// Returns a table of a layer, and makes it if it is missing.
pub(super) fn table_of<'a>(
    contents: &'a mut Map<String, Value>,
    name: &str,
) -> &'a mut Map<String, Value> {
    let table = contents.entry(name).or_insert_with(|| Map::new().into());
    if !table.is_object() {
        *table = Map::new().into();
    }
    table.as_object_mut().expect("it is a table")
}

/// `GET /console/admin/models.csv`: returns this month's cost and revenue of each model as a file.
pub(super) async fn download_economics(
    State(app): State<App>,
    _: ConsoleAdmin,
) -> Result<Response, ApiError> {
    let month = Month::of(app.clock.now());
    let economics = routes::model_economics(&app, &month).await?;
    Ok(routes::economics_table(&economics))
}

fn served(upstream: ListedUpstream) -> ServedUpstream {
    let prices = upstream.price.as_object();
    let price = match prices.and_then(|prices| Some((prices.get("input")?, prices.get("output")?)))
    {
        Some((input, output)) => format!("{input} in, {output} out per million tokens"),
        // A price of another unit is the only one.
        None => match prices.and_then(|prices| prices.iter().next()) {
            Some((name, usd)) => format!("{usd} {}", units_of_price(name)),
            None => String::new(),
        },
    };
    ServedUpstream {
        provider: upstream.provider,
        model: upstream.model,
        price,
    }
}
