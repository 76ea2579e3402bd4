//! Models with their upstreams, as sections of weir's configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use weir_catalog::config::{ModelConfig, PriceConfig};
use weir_catalog::kinds::{self, KindOutput};
use weir_sandbox::adapter::WorkKind;

use super::fields::ImportNotes;
use super::terms::{DeploymentTerms, KnownModels};
use crate::prices::section::{self, DEFAULT_OUTPUT_TOKENS, quoted};

/// The context window and the output limit of a model with a price and without limits, in tokens.
const DEFAULT_WINDOW: u32 = 128_000;
const DEFAULT_OUTPUT: u32 = 4_096;

/// A group of deployments with one name, which becomes a model.
pub struct ModelGroup {
    /// The name in requests.
    pub id: String,
    pub aliases: Vec<String>,
    pub deployments: Vec<Deployment>,
    /// Groups to which the model falls back.
    pub fallbacks: Vec<String>,
}

/// A deployment that weir can reach.
pub struct Deployment {
    /// Its path in the file.
    pub at: String,
    /// The name of its provider in weir's configuration.
    pub provider: String,
    /// The provider's name of the model.
    pub model: String,
    /// Whether the built-in catalog's options fit the server.
    pub is_vendors_own: bool,
    /// Whether it is asked by the Responses API.
    pub uses_responses: bool,
    /// Its prices and limits.
    pub terms: DeploymentTerms,
    /// Its `weight`, `rpm` and `tpm`.
    pub weights: [Option<f64>; 3],
    /// Deployments with the lowest number come first.
    pub order: Option<u32>,
}

/// The written sections of all models.
pub struct ModelSections {
    pub text: String,
    /// The number of models that weir can serve.
    pub complete: usize,
    pub upstreams: usize,
    pub comments: Vec<String>,
}

/// Writes the sections. `route` is the order of all models' upstreams.
pub fn sections(
    groups: &[ModelGroup],
    route: &str,
    known: &KnownModels,
    notes: &mut ImportNotes,
) -> ModelSections {
    let mut sections = ModelSections {
        text: String::new(),
        complete: 0,
        upstreams: 0,
        comments: Vec::new(),
    };
    for group in groups {
        let mut writer = Writer {
            group,
            route,
            known,
            notes,
        };
        let missing = writer.missing();
        if missing.is_empty() {
            writer.note_defaults();
        }
        let upstreams = writer.upstreams(groups, missing.is_empty());
        let section = writer.section(&upstreams);
        match missing.is_empty() {
            true => {
                sections.complete += 1;
                sections.upstreams += upstreams.len();
                sections.text.push_str(&section);
            }
            false => {
                sections.comments.push(group.id.clone());
                let missing = missing.join(", ");
                notes.leave_out(
                    &group.deployments[0].at,
                    format!(
                        "the model {:?} is a comment: neither the file nor the built-in catalog has {missing}; add it, \
                         or import with `--prices`",
                        group.id
                    ),
                );
                let _ = writeln!(
                    sections.text,
                    "# Add {missing}, and remove the `# ` from this section."
                );
                for line in section.trim_end().lines() {
                    let _ = writeln!(sections.text, "# {line}");
                }
                sections.text.push('\n');
            }
        }
    }
    sections
}

struct Writer<'a> {
    group: &'a ModelGroup,
    route: &'a str,
    known: &'a KnownModels,
    notes: &'a mut ImportNotes,
}

struct WrittenUpstream<'a> {
    deployment: &'a Deployment,
    weight: Option<u32>,
    /// The price, if there is one.
    price: Option<&'a PriceConfig>,
}

fn price_of(deployment: &Deployment) -> Option<&PriceConfig> {
    let price = deployment.terms.price.as_ref();
    price.filter(|price| price.resolve().is_ok())
}

fn has_price(deployment: &Deployment) -> bool {
    price_of(deployment).is_some()
}

fn least(limits: impl Iterator<Item = Option<u32>>) -> Option<u32> {
    limits.flatten().min()
}

impl<'a> Writer<'a> {
    /// The context window: no deployment has a smaller one. A model with a price has a default one.
    fn window(&self) -> Option<u32> {
        let default = self.has_price().then_some(DEFAULT_WINDOW);
        self.known_window().or(default)
    }

    fn output(&self) -> Option<u32> {
        let default = self.has_price().then_some(DEFAULT_OUTPUT);
        let window = self.known_window().unwrap_or(DEFAULT_WINDOW);
        self.known_output()
            .or(default.map(|default| default.min(window)))
    }

    fn known_window(&self) -> Option<u32> {
        least(self.group.deployments.iter().map(|one| one.terms.window))
    }

    fn known_output(&self) -> Option<u32> {
        least(self.group.deployments.iter().map(|one| one.terms.output))
    }

    fn has_price(&self) -> bool {
        self.group.deployments.iter().any(has_price)
    }

    /// Notes the limits that nothing tells.
    fn note_defaults(&mut self) {
        let has_output = self.kind() != WorkKind::Chat || self.known_output().is_some();
        for (name, is_known, default) in [
            (
                "context_window",
                self.known_window().is_some(),
                DEFAULT_WINDOW,
            ),
            ("max_output_tokens", has_output, DEFAULT_OUTPUT),
        ] {
            if !is_known {
                self.notes.change(
                    &self.group.deployments[0].at,
                    format!(
                        "neither the file nor the built-in catalog has the `{name}` of {:?}: it is {default}; set it to the model's",
                        self.group.id
                    ),
                );
            }
        }
    }

    /// Returns the settings without which weir cannot serve the model.
    fn missing(&self) -> Vec<&'static str> {
        [
            ("`context_window`", self.window().is_some()),
            (
                "`max_output_tokens`",
                self.kind() != WorkKind::Chat || self.output().is_some(),
            ),
            ("a price", self.has_price()),
        ]
        .into_iter()
        .filter_map(|(name, is_there)| (!is_there).then_some(name))
        .collect()
    }

    /// Returns the upstreams: the group's deployments, and those of its fallbacks.
    fn upstreams(
        &mut self,
        groups: &'a [ModelGroup],
        is_complete: bool,
    ) -> Vec<WrittenUpstream<'a>> {
        let group = self.group;
        let mut own: Vec<&Deployment> = group.deployments.iter().collect();
        // The dearest price of the group is the price of a deployment without one.
        let prices = own.iter().filter_map(|one| price_of(one));
        let dearest = prices.max_by_key(|price| [price.output, price.input]);
        for one in own.iter().filter(|one| is_complete && !has_price(one)) {
            self.notes.change(
                &one.at,
                format!(
                    "nothing has a price of {:?}: as an upstream of {:?}, it has the dearest one of the others",
                    one.model, group.id
                ),
            );
        }
        own.sort_by_key(|one| one.order.unwrap_or(u32::MAX));
        let mut upstreams: Vec<WrittenUpstream<'_>> = Vec::new();
        for (deployment, weight) in own.iter().zip(self.weights(&own)) {
            let mut same = upstreams.iter_mut();
            match same.find(|other| is_same(other.deployment, deployment)) {
                None => upstreams.push(WrittenUpstream {
                    deployment,
                    weight,
                    price: price_of(deployment).or(dearest),
                }),
                Some(other) => {
                    other.weight = other
                        .weight
                        .map(|own| own.saturating_add(weight.unwrap_or(0)));
                    self.notes.change(
                        &deployment.at,
                        format!(
                            "it is the same upstream of {:?} as {}",
                            group.id, other.deployment.at
                        ),
                    );
                }
            }
        }
        if let [only] = upstreams.as_mut_slice() {
            only.weight = None;
        }
        for fallback in &group.fallbacks {
            // The caller has checked the name.
            let Some(other) = groups.iter().find(|other| other.id == *fallback) else {
                continue;
            };
            for deployment in other.deployments.iter().filter(|one| has_price(one)) {
                if upstreams
                    .iter()
                    .all(|one| !is_same(one.deployment, deployment))
                {
                    upstreams.push(WrittenUpstream {
                        deployment,
                        weight: None,
                        price: price_of(deployment),
                    });
                }
            }
            let lower = |own: Option<u32>, of: fn(&DeploymentTerms) -> Option<u32>| {
                own > least(other.deployments.iter().map(|one| of(&one.terms)))
            };
            if lower(self.window(), |terms| terms.window)
                || lower(self.output(), |terms| terms.output)
            {
                self.notes.change(
                    &group.deployments[0].at,
                    format!(
                        "{:?} falls back to {fallback:?}, which has lower limits of tokens",
                        group.id
                    ),
                );
            }
        }
        upstreams
    }

    /// Returns LiteLLM's weights: `weight`, else `rpm`, else `tpm`, else equal ones; only of the deployments with the
    /// lowest `order`.
    fn weights(&mut self, own: &[&Deployment]) -> Vec<Option<u32>> {
        if self.route != "weight" || own.len() < 2 {
            return vec![None; own.len()];
        }
        let first = own[0].order;
        let drawn: Vec<_> = own.iter().filter(|one| one.order == first).collect();
        let metric = (0..3).find(|index| {
            let mut weights = drawn.iter().map(|one| one.weights[*index]);
            weights.any(|weight| weight.is_some_and(|weight| weight > 0.0))
        });
        let of = |one: &Deployment| metric.map_or(1.0, |index| one.weights[index].unwrap_or(0.0));
        let is_whole = drawn.iter().all(|one| of(one).fract() == 0.0);
        let scale = if is_whole { 1.0 } else { 1_000.0 };
        own.iter()
            .map(|one| {
                let weight = (of(one) * scale).round().min(f64::from(u32::MAX)) as u32;
                // A weight of 0 comes after the others, as without a weight.
                (one.order == first && weight > 0).then_some(weight)
            })
            .collect()
    }

    /// Returns the built-in models of the deployments, if all have one.
    fn built_in(&self) -> Vec<(&'a str, &'a ModelConfig)> {
        let (group, known) = (self.group, self.known);
        let ids = group.deployments.iter().map(|one| {
            let id = one.terms.built_in.as_ref()?;
            known.built_in.get_key_value(id)
        });
        let all: Option<BTreeMap<&str, &ModelConfig>> = ids
            .map(|found| found.map(|(id, model)| (&**id, model)))
            .collect();
        all.unwrap_or_default().into_iter().collect()
    }

    /// The kind of the group's requests.
    fn kind(&self) -> WorkKind {
        self.group.deployments[0].terms.kind
    }

    fn section(&mut self, upstreams: &[WrittenUpstream<'_>]) -> String {
        let group = self.group;
        let number = |limit: Option<u32>| limit.map_or(String::new(), |limit| format!(" {limit}"));
        let output = self.output();
        let mut section = format!("[models.{}]\n", quoted(&group.id));
        if !group.aliases.is_empty() {
            let aliases: Vec<_> = group.aliases.iter().map(|alias| quoted(alias)).collect();
            let _ = writeln!(section, "aliases = [{}]", aliases.join(", "));
        }
        let built_in = self.built_in();
        if let [(_, model)] = built_in.as_slice()
            && let Some(day) = model.ends_on
        {
            let _ = writeln!(section, "ends_on = \"{day}\"");
        }
        let _ = writeln!(section, "context_window ={}", number(self.window()));
        match self.kind() {
            WorkKind::Chat => {
                let _ = writeln!(
                    section,
                    "max_output_tokens ={}\ndefault_output_tokens ={}",
                    number(output),
                    number(output.map(|output| output.min(DEFAULT_OUTPUT_TOKENS)))
                );
            }
            kind => {
                let _ = writeln!(section, "kind = \"{}\"", kind.name());
                if let Some(output) =
                    output.filter(|output| kinds::output(kind) == KindOutput::Audio && *output > 0)
                {
                    let _ = writeln!(section, "max_output_tokens = {output}");
                }
            }
        }
        if group.deployments.iter().all(|one| one.terms.tools) {
            section.push_str("supports_tools = true\n");
        }
        if group.deployments.iter().all(|one| one.terms.vision) {
            self.write_vision(&mut section, &built_in);
        }
        if let [(_, model)] = built_in.as_slice() {
            if model.supports_chat {
                section.push_str("supports_chat = true\n");
            }
            for (name, values) in [
                ("image_sizes", &model.image_sizes),
                ("image_qualities", &model.image_qualities),
            ] {
                if !values.is_empty() {
                    let values: Vec<_> = values.iter().map(|value| quoted(value)).collect();
                    let _ = writeln!(section, "{name} = [{}]", values.join(", "));
                }
            }
        }
        if self.route != "weight" {
            let _ = writeln!(section, "route = {}", quoted(self.route));
        }
        self.write_upstreams(&mut section, upstreams);
        section.push('\n');
        section
    }

    fn write_vision(&mut self, section: &mut String, built_in: &[(&str, &ModelConfig)]) {
        let tokens = built_in
            .iter()
            .map(|(_, model)| model.max_image_tokens)
            .max();
        let Some(tokens) = tokens.filter(|tokens| *tokens > 0) else {
            section.push_str("# The model accepts images. Set both:\n# supports_vision = true\n# max_image_tokens =\n");
            self.notes.leave_out(
                &self.group.deployments[0].at,
                format!(
                    "images of {:?}: set `supports_vision` and `max_image_tokens`, which LiteLLM does not have",
                    self.group.id
                ),
            );
            return;
        };
        let _ = writeln!(
            section,
            "supports_vision = true\nmax_image_tokens = {tokens}"
        );
        if let [(id, _)] = built_in
            && let Some(family) = self.known.image_family(id)
        {
            let _ = writeln!(section, "image_family = {}", quoted(family));
        }
    }

    fn write_upstreams(&self, section: &mut String, upstreams: &[WrittenUpstream<'_>]) {
        let price_of = |one: &WrittenUpstream<'_>| one.price.map(section::price);
        let prices: BTreeSet<_> = upstreams.iter().map(price_of).collect();
        let is_one = prices.len() == 1;
        section.push_str("upstreams = [\n");
        for upstream in upstreams {
            let Deployment {
                provider, model, ..
            } = upstream.deployment;
            let mut fields = format!("provider = {}", quoted(provider));
            if *model != self.group.id {
                let _ = write!(fields, ", model = {}", quoted(model));
            }
            if let Some(weight) = upstream.weight {
                let _ = write!(fields, ", weight = {weight}");
            }
            fields.push_str(&self.adapter_settings(upstream.deployment));
            if !is_one && let Some(price) = price_of(upstream) {
                let _ = write!(fields, ", price = {price}");
            }
            let _ = writeln!(section, "    {{ {fields} }},");
        }
        section.push_str("]\n");
        if is_one {
            let price = prices.into_iter().next().flatten();
            let price = price.unwrap_or_else(|| "{ input = , output = }".to_owned());
            let _ = writeln!(section, "price = {price}");
        }
    }

    /// Returns the settings that the built-in catalog has for the model at its vendor.
    fn adapter_settings(&self, deployment: &Deployment) -> String {
        let built_in = deployment.terms.built_in.as_ref();
        let built_in = built_in.filter(|_| deployment.is_vendors_own);
        let built_in = built_in.and_then(|id| self.known.built_in[id].upstreams.first());
        let mut options = built_in.map_or_else(BTreeMap::new, |one| one.options.clone());
        if deployment.uses_responses {
            options.insert("api".to_owned(), "responses".to_owned());
        }
        let mut settings = String::new();
        if !options.is_empty() {
            let options: Vec<_> = options
                .iter()
                .map(|(name, value)| format!("{name} = {}", quoted(value)))
                .collect();
            let _ = write!(settings, ", options = {{ {} }}", options.join(", "));
        }
        if built_in.is_some_and(|one| one.stream_plain) {
            settings.push_str(", stream_plain = true");
        }
        settings
    }
}

fn is_same(a: &Deployment, b: &Deployment) -> bool {
    (&a.provider, &a.model) == (&b.provider, &b.model)
}
