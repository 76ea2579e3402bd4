//! Sections of a configuration file for imported models.

use std::fmt::Write as _;

use weir_catalog::config::PriceConfig;

use super::difference::{ChangedModel, NewModel};

/// The maximum default output limit of a new model, in tokens.
pub const DEFAULT_OUTPUT_TOKENS: u32 = 8_192;

pub fn of_new(model: &NewModel) -> String {
    let NewModel {
        provider,
        id,
        terms,
    } = model;
    let mut section = header(id);
    if let Some(name) = terms
        .name
        .as_ref()
        .filter(|name| !name.contains(char::is_control))
    {
        let _ = writeln!(section, "name = {}", quoted(name));
    }
    if let Some(day) = terms.ends_on {
        let _ = writeln!(section, "ends_on = \"{day}\"");
    }
    let output = terms.max_output_tokens;
    let default = output.min(DEFAULT_OUTPUT_TOKENS);
    let _ = write!(
        section,
        "context_window = {}\nmax_output_tokens = {output}\ndefault_output_tokens = {default}\n",
        terms.least_window
    );
    if terms.supports_tools {
        section.push_str("supports_tools = true\n");
    }
    if terms.supports_vision {
        section.push_str(
            "# The model accepts images. The file has no limit of their tokens; set both:\n\
             # supports_vision = true\n# max_image_tokens =\n",
        );
    }
    let _ = write!(
        section,
        "upstreams = [{{ provider = {} }}]\nprice = {}\n",
        quoted(provider),
        price(&terms.price)
    );
    section
}

/// Returns the section that overrides the changed fields of a model.
pub fn of_changed(model: &ChangedModel) -> String {
    let mut section = header(&model.id);
    for change in &model.limits {
        let _ = match change.field.as_str() {
            "ends_on" => writeln!(section, "ends_on = \"{}\"", change.after),
            field => writeln!(section, "{field} = {}", change.after),
        };
    }
    if let Some(new) = &model.price {
        let _ = writeln!(section, "price = {}", price(new));
    }
    section
}

pub fn commented(section: &str, why: &str) -> String {
    let mut text = format!("# Merge this section by hand: {why}.\n");
    for line in section.lines() {
        let _ = writeln!(text, "# {line}");
    }
    text
}

fn header(id: &str) -> String {
    format!("[models.{}]\n", quoted(id))
}

/// Returns a string of TOML, whose escapes include those of JSON.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns a price as a table of TOML.
pub fn price(price: &PriceConfig) -> String {
    let of_unit = [
        ("image", price.image),
        ("characters", price.characters),
        ("minute", price.minute),
    ];
    let of_unit = of_unit
        .into_iter()
        .find_map(|(name, usd)| Some((name, usd?)));
    if let Some((name, usd)) = of_unit {
        return format!("{{ {name} = {} }}", usd.decimal());
    }
    let fields = price.fields().into_iter();
    let mut fields: Vec<_> = fields
        .map(|(name, usd)| format!("{name} = {}", usd.decimal()))
        .collect();
    if let Some(above) = &price.above {
        fields.push(format!(
            "above = {{ input_tokens = {}, price = {} }}",
            above.input_tokens,
            self::price(&above.price)
        ));
    }
    format!("{{ {} }}", fields.join(", "))
}
