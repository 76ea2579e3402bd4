//! Prices and limits of a deployment: of the file, else of the built-in catalog, else of a price file.

use std::collections::{BTreeMap, BTreeSet};

use figment::Figment;
use figment::providers::{Format, Toml};
use serde::Deserialize;
use weir_catalog::config::{InputUnit, ModelConfig, PriceConfig};
use weir_ledger::price::NanoUsd;
use weir_sandbox::adapter::WorkKind;

use super::fields::{ImportNotes, YamlFields};
use super::yaml::Node;
use crate::prices::litellm as price_table;
use crate::prices::offer::{Offer, OfferContent, OfferTerms};

/// Prices and limits; `None` if nothing tells them.
#[derive(Default)]
pub struct DeploymentTerms {
    pub kind: WorkKind,
    pub price: Option<PriceConfig>,
    /// Tokens of input and output.
    pub window: Option<u32>,
    /// Output tokens.
    pub output: Option<u32>,
    pub tools: bool,
    pub vision: bool,
    /// The model's id in the built-in catalog.
    pub built_in: Option<String>,
}

#[derive(Clone, Copy)]
pub struct DeploymentPlace<'a> {
    pub at: &'a str,
    pub group: &'a str,
    pub names: [&'a str; 2],
}

/// Everything that is known of models besides the file.
pub struct KnownModels {
    pub built_in: BTreeMap<String, ModelConfig>,
    /// Names of the image families of built-in models.
    families: BTreeMap<String, NamedFamily>,
    /// The models of a price file.
    offers: BTreeMap<String, Offer>,
}

/// The family of a built-in model, by its name.
#[derive(Deserialize)]
struct NamedFamily {
    image_family: Option<String>,
}

impl KnownModels {
    /// Adds the offers of a price file to the built-in models.
    pub fn new(built_in: BTreeMap<String, ModelConfig>, offers: Vec<Offer>) -> Self {
        let families = Figment::from(Toml::string(weir_catalog::DEFAULT)).extract_inner("models");
        let offers = offers.into_iter();
        Self {
            built_in,
            families: families.unwrap_or_default(),
            offers: offers.map(|offer| (offer.entry.clone(), offer)).collect(),
        }
    }

    /// Returns the name of a built-in model's image family.
    pub fn image_family(&self, id: &str) -> Option<&str> {
        self.families.get(id)?.image_family.as_deref()
    }

    /// Returns the built-in model with this name at its provider.
    fn built_in(&self, name: &str) -> Option<(&String, &ModelConfig)> {
        let name = name.rsplit('/').next()?;
        // Vertex AI separates the date by an `@`.
        let name = name.replace('@', "-");
        self.built_in.iter().find(|(id, model)| {
            let mut names = model.upstreams.iter().filter_map(|one| one.model.as_ref());
            **id == name || model.aliases.contains(&name) || names.any(|other| *other == name)
        })
    }

    /// Returns the known models whose names match a pattern, such as `openai/` and an end, each with the part between.
    pub fn matches(&self, (start, end): (&str, &str)) -> Vec<(String, String)> {
        let built_in = self.built_in.iter().filter_map(|(id, model)| {
            let upstream = model.upstreams.first()?;
            let own = upstream.model.as_deref().unwrap_or(id);
            Some(format!("{}/{own}", upstream.provider))
        });
        let offered = self.offers.values();
        let offered = offered.filter(|offer| matches!(offer.content, OfferContent::Chat(_)));
        let names: BTreeSet<_> = built_in
            .chain(offered.map(|offer| offer.entry.clone()))
            .collect();
        // A pattern without a provider would need the keys of all.
        let names = names.into_iter().filter(|_| start.contains('/'));
        names
            .filter_map(|name| {
                let part = name.strip_prefix(start)?.strip_suffix(end)?.to_owned();
                Some((name, part))
            })
            .collect()
    }

    /// Takes prices and limits from `model_info` and `litellm_params`. A deployment of an unknown model has those of the
    /// model that has the name of its group.
    ///
    /// # Errors
    ///
    /// The reason for which weir cannot serve the deployment.
    pub fn terms(
        &self,
        place: DeploymentPlace<'_>,
        params: &mut YamlFields,
        info: &mut YamlFields,
        notes: &mut ImportNotes,
    ) -> Result<DeploymentTerms, String> {
        let base = info.take("base_model");
        let base = base.as_ref().and_then(Node::text);
        let names: Vec<_> = base.into_iter().chain(place.names).collect();
        let built_in = names.iter().find_map(|name| self.built_in(name));
        let offer = names.iter().find_map(|name| self.offers.get(*name));
        let mode = info.take("mode").or(params.take("mode"));
        let of_group = match (built_in, offer) {
            (None, None) => self.built_in(place.group),
            _ => None,
        };
        let of_built_in = built_in
            .or(of_group)
            .map_or(WorkKind::Chat, |(_, model)| model.kind);
        let kind = match mode.as_ref().and_then(Node::text) {
            None => of_built_in,
            Some("embedding") => WorkKind::Embeddings,
            Some("rerank") => WorkKind::Rerank,
            Some("moderation") => WorkKind::Moderation,
            // Prices per character and second are those of the built-in models alone.
            Some("audio_speech") if of_built_in == WorkKind::Speech => of_built_in,
            Some("audio_transcription") if of_built_in == WorkKind::Transcription => of_built_in,
            Some("chat" | "completion" | "responses") => WorkKind::Chat,
            Some("image_generation") if built_in.or(of_group).is_some() => WorkKind::Chat,
            Some(mode) => {
                return Err(format!(
                    "weir has no price for models of this kind; its mode is {mode:?}"
                ));
            }
        };
        let mut terms = match (built_in, offer.map(|offer| &offer.content)) {
            (Some((id, model)), _) => DeploymentTerms::built_in(kind, id, model),
            (None, Some(OfferContent::Chat(offered))) => DeploymentTerms::offered(kind, offered),
            (None, Some(OfferContent::Other)) => {
                return Err("the price file has no chat model of this name".to_owned());
            }
            (None, Some(OfferContent::Unusable(_)) | None) => DeploymentTerms {
                kind,
                ..DeploymentTerms::default()
            },
        };
        terms.take_price(params, info, notes);
        terms.take_limits(params, info, notes);
        if built_in.is_none() && offer.is_none() {
            terms.take_from_group(self, place, notes);
        }
        if kind != WorkKind::Chat
            && let Some(price) = &mut terms.price
            && price.unit() == InputUnit::Token
        {
            price.output.get_or_insert(NanoUsd(0));
        }
        let mut flag = |name, value: &mut bool| {
            let (own, other) = (params.take(name), info.take(name));
            if let Some(node) = own.or(other) {
                *value = node.is_true();
            }
        };
        flag("supports_function_calling", &mut terms.tools);
        flag("supports_vision", &mut terms.vision);
        Ok(terms)
    }
}

impl DeploymentTerms {
    /// Takes what is missing from the known model that has the name of the deployment's group.
    fn take_from_group(
        &mut self,
        known: &KnownModels,
        place: DeploymentPlace<'_>,
        notes: &mut ImportNotes,
    ) {
        let DeploymentPlace { at, group, names } = place;
        let mut taken = Vec::new();
        let has_price = |price: &Option<PriceConfig>| {
            price.as_ref().is_some_and(|price| price.resolve().is_ok())
        };
        let of_group = match (known.built_in(group), known.offers.get(group)) {
            (Some((id, model)), _) => Self::built_in(self.kind, id, model),
            (None, Some(offer)) => match &offer.content {
                OfferContent::Chat(offered) => Self::offered(self.kind, offered),
                OfferContent::Other | OfferContent::Unusable(_) => return,
            },
            (None, None) => return,
        };
        if !has_price(&self.price) {
            let own = self.price.take().unwrap_or_default();
            self.price = Some(over(own, of_group.price.unwrap_or_default()));
            self.tools = of_group.tools;
            self.vision = of_group.vision;
            self.built_in = of_group.built_in;
            taken.push("the price");
        }
        if self.window.is_none() {
            self.window = of_group.window;
            taken.push("the context window");
        }
        if self.output.is_none() && self.kind == WorkKind::Chat {
            self.output = of_group.output;
            taken.push("the output limit");
        }
        if !taken.is_empty() {
            let [name, _] = names;
            notes.change(
                at,
                format!(
                    "nothing is known of {name:?}: it has {} of {group:?}, the name of its group; \
                     `model_info.base_model` names another model",
                    taken.join(", ")
                ),
            );
        }
    }

    fn built_in(kind: WorkKind, id: &str, model: &ModelConfig) -> Self {
        Self {
            kind,
            price: model.price.clone(),
            window: Some(model.context_window),
            output: Some(model.max_output_tokens),
            tools: model.supports_tools,
            vision: model.supports_vision,
            built_in: Some(id.to_owned()),
        }
    }

    fn offered(kind: WorkKind, offered: &OfferTerms) -> Self {
        Self {
            price: Some(offered.price.clone()),
            window: Some(offered.least_window),
            output: Some(offered.max_output_tokens),
            tools: offered.supports_tools,
            vision: offered.supports_vision,
            kind,
            built_in: None,
        }
    }

    fn take_price(
        &mut self,
        params: &mut YamlFields,
        info: &mut YamlFields,
        notes: &mut ImportNotes,
    ) {
        // The parameters have precedence.
        let mut nodes = info.take_all(price_table::is_price);
        nodes.extend(params.take_all(price_table::is_price));
        let Some(at) = nodes.first().map(|(_, node)| node.at.clone()) else {
            return;
        };
        let texts = nodes.into_iter().filter_map(|(name, node)| {
            let text = node.text()?.replace('_', "");
            Some((name, text))
        });
        match price_table::price_of(&texts.collect()) {
            Ok(own) => self.price = Some(over(own, self.price.take().unwrap_or_default())),
            Err(why) => {
                self.price = None;
                notes.leave_out(at, why);
            }
        }
    }

    fn take_limits(
        &mut self,
        params: &mut YamlFields,
        info: &mut YamlFields,
        notes: &mut ImportNotes,
    ) {
        let mut limit = |name: &str, in_params: bool| {
            // In the parameters, `max_tokens` is the default of requests.
            let own = in_params.then(|| params.take(name)).flatten();
            let node = own.or(info.take(name))?;
            let tokens = node.whole().filter(|tokens| *tokens > 0);
            if tokens.is_none() {
                notes.leave_out(node.at, "it is no number of tokens");
            }
            tokens
        };
        let (input, output) = (
            limit("max_input_tokens", true),
            limit("max_output_tokens", true),
        );
        let either = limit("max_tokens", false);
        self.window = input.or(self.window);
        self.output = output.or(either).or(self.output);
        if let (Some(window), Some(output)) = (self.window, self.output)
            && output > window
        {
            // LiteLLM's limit of the input excludes the output; weir's window includes it.
            self.window = Some(window.saturating_add(output));
        }
    }
}

/// Returns a price with the missing parts of another.
fn over(own: PriceConfig, base: PriceConfig) -> PriceConfig {
    PriceConfig {
        input: own.input.or(base.input),
        cache_read: own.cache_read.or(base.cache_read),
        cache_write_short: own.cache_write_short.or(base.cache_write_short),
        cache_write_long: own.cache_write_long.or(base.cache_write_long),
        output: own.output.or(base.output),
        audio_input: own.audio_input.or(base.audio_input),
        audio_output: own.audio_output.or(base.audio_output),
        image_output: own.image_output.or(base.image_output),
        search: own.search.or(base.search),
        above: own.above.or(base.above),
        image: base.image,
        characters: base.characters,
        minute: base.minute,
    }
}
