//! LiteLLM's proxy configuration, translated.
//!
//! The format is that of litellm 1.110.2: `proxy/_types.py`, `types/router.py` and `proxy/common_utils/config_includes.py`.
//!
//! **Invariant:** each key of the file is carried over, or is in the notes. No secret of the file is in the configuration or
//! in the notes.

mod deployment;
pub mod fields;
mod hints;
pub mod models;
pub mod terms;
pub mod yaml;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use self::deployment::{ImportEnvironment, connect, milliseconds};
use self::fields::{ImportNotes, YamlFields};
use self::models::{Deployment, ModelGroup, ModelSections};
use self::terms::{DeploymentPlace, KnownModels};
use self::yaml::{Node, YamlValue};

/// `timeouts.total_ms` of weir, if nothing sets it.
const TOTAL_MS: u64 = 600_000;

/// Fields of Chat Completions that `drop_params` drops for providers without them, and that an adapter of weir may reject. weir owns or
/// prices some others, such as `web_search_options`, and drops none of them.
const DROPPED: [&str; 10] = [
    "audio",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "modalities",
    "parallel_tool_calls",
    "presence_penalty",
    "seed",
    "top_logprobs",
    "verbosity",
];

/// A translated configuration.
pub struct ImportedConfig {
    pub toml: String,
    pub models: ModelSections,
    pub providers: usize,
    /// The models that lack upstreams of the file.
    pub incomplete: Vec<MissingUpstreams>,
}

/// A model that lacks upstreams of the file.
pub struct MissingUpstreams {
    /// The model's name in requests.
    pub id: String,
    /// The number of its upstreams that are missing.
    pub missing: usize,
    /// The number of its deployments in the file.
    pub all: usize,
}

/// Translates a file with its included files.
///
/// # Errors
///
/// A part that LiteLLM would reject, too.
pub fn translate(
    mut file: YamlFields,
    known: &KnownModels,
    notes: &mut ImportNotes,
) -> Result<ImportedConfig, String> {
    let mut environment = ImportEnvironment::default();
    take_variables(file.take("environment_variables"), &mut environment, notes)?;
    let credentials = credentials(file.take("credential_list"))?;
    let mut router = YamlFields::of(file.take("router_settings"))?;
    let mut settings = YamlFields::of(file.take("litellm_settings"))?;
    let general = YamlFields::of(file.take("general_settings"))?;

    let route = route(&mut router, notes);
    let timeouts = timeouts(&mut router, &mut settings, notes);
    let drops = drop_params(&mut settings);
    let mut deployments = Deployments {
        known,
        notes,
        environment,
        credentials,
        providers: Vec::new(),
        groups: Vec::new(),
        tallies: Vec::new(),
    };
    let mut wildcards = Vec::new();
    for node in file.take("model_list").iter().flat_map(Node::items) {
        let entry = DeploymentEntry::of(node.clone())?;
        match &entry {
            Some(entry) if entry.is_wildcard() => wildcards.push(entry.clone()),
            Some(entry) => deployments.add(entry.clone()),
            None => deployments.notes.leave_out(
                &node.at,
                "it has no `model_name` or no `litellm_params.model`",
            ),
        }
    }
    deployments.add_wildcards(wildcards);
    let Deployments {
        providers,
        mut groups,
        tallies,
        ..
    } = deployments;
    add_aliases(&mut groups, router.take("model_group_alias"), notes)?;
    add_fallbacks(&mut groups, &mut router, &mut settings, route, notes)?;
    let models = models::sections(&groups, route, known, notes);

    router.leave_out(notes, |key| hints::why("router_settings", key));
    settings.leave_out(notes, |key| hints::why("litellm_settings", key));
    general.leave_out(notes, |key| hints::why("general_settings", key));
    file.leave_out(notes, |key| hints::why("", key));

    let mut toml = "# Written by `weir import litellm`. Without `dev = false`, it is a configuration for development.\n\n\
                    # Only the models below.\ndefault_catalog = false\n"
        .to_owned();
    if drops {
        let fields: Vec<_> = DROPPED.iter().map(|field| format!("{field:?}")).collect();
        let _ = write!(
            toml,
            "# In place of `drop_params`.\nignore_fields = [{}]\n",
            fields.join(", ")
        );
    }
    toml.push_str("\n# As with LiteLLM, clients pay the providers' prices.\n[price_factors]\ntext = 1\nimage = 1\n\n");
    toml.push_str(&timeouts);
    for (name, settings) in &providers {
        let _ = write!(toml, "[providers.{name}]\n{settings}\n");
    }
    toml.push_str(models.text.trim_end());
    toml.push('\n');
    let incomplete = tallies.into_iter().filter_map(|mut tally| {
        if models.comments.contains(&tally.id) {
            tally.missing = tally.all;
        }
        (tally.missing > 0).then_some(tally)
    });
    Ok(ImportedConfig {
        toml,
        incomplete: incomplete.collect(),
        models,
        providers: providers.len(),
    })
}

/// Takes the environment variables that the file sets. They may be secrets.
fn take_variables(
    node: Option<Node>,
    environment: &mut ImportEnvironment,
    notes: &mut ImportNotes,
) -> Result<(), String> {
    for (name, node) in YamlFields::of(node)?.take_all(|_| true) {
        notes.leave_out(
            &node.at,
            "never copied: set it in the environment of weir if the configuration needs it",
        );
        if let Some(text) = node.text().filter(|text| !text.starts_with("os.environ/")) {
            environment.set.insert(name, text.to_owned());
        }
    }
    Ok(())
}

/// Returns the parameters that deployments share, by name.
fn credentials(node: Option<Node>) -> Result<BTreeMap<String, Node>, String> {
    let mut credentials = BTreeMap::new();
    for node in node.iter().flat_map(Node::items) {
        let mut fields = YamlFields::of(Some(node.clone()))?;
        let name = fields.take("credential_name");
        let values = fields.take("credential_values");
        if let (Some(name), Some(values)) = (name.as_ref().and_then(Node::text), values) {
            credentials.insert(name.to_owned(), values);
        }
    }
    Ok(credentials)
}

/// Returns the order of upstreams for a routing strategy.
fn route(router: &mut YamlFields, notes: &mut ImportNotes) -> &'static str {
    let Some(node) = router.take("routing_strategy") else {
        return "weight";
    };
    match node.text().unwrap_or_default() {
        "simple-shuffle" => "weight",
        "least-busy" => "load",
        "latency-based-routing" => "latency",
        "cost-based-routing" => "price",
        _ => {
            notes.leave_out(
                node.at,
                "weir has no such order of upstreams; it draws them by weight",
            );
            "weight"
        }
    }
}

/// Returns the section with the timeouts of all providers.
fn timeouts(router: &mut YamlFields, settings: &mut YamlFields, notes: &mut ImportNotes) -> String {
    let mut limit = |fields: &mut YamlFields, name: &str| {
        let node = fields.take(name)?;
        milliseconds(node.text().unwrap_or_default(), &node.at, notes)
    };
    let all = limit(settings, "request_timeout");
    let plain = limit(router, "timeout").or(all);
    let stream = limit(router, "stream_timeout");
    let longest = plain.max(stream).filter(|longest| *longest > TOTAL_MS);
    let mut section = String::new();
    for (name, ms) in [
        ("first_byte_ms", plain),
        ("first_token_ms", stream),
        ("idle_ms", plain),
        ("total_ms", longest),
    ] {
        if let Some(ms) = ms {
            let _ = writeln!(section, "{name} = {ms}");
        }
    }
    match section.is_empty() {
        true => section,
        false => format!("[timeouts]\n{section}\n"),
    }
}

fn drop_params(settings: &mut YamlFields) -> bool {
    settings
        .take("drop_params")
        .is_some_and(|node| node.is_true())
}

#[derive(Clone)]
struct DeploymentEntry {
    at: String,
    /// The model's name in requests.
    id: String,
    /// LiteLLM's name of the provider and its model.
    model: String,
    params: YamlFields,
    info: YamlFields,
    rest: YamlFields,
}

impl DeploymentEntry {
    /// Reads an entry; `None` if it has no names.
    fn of(node: Node) -> Result<Option<Self>, String> {
        let at = node.at.clone();
        let mut rest = YamlFields::of(Some(node))?;
        let name = rest.take("model_name");
        let mut params = YamlFields::of(rest.take("litellm_params"))?;
        let info = YamlFields::of(rest.take("model_info"))?;
        let (Some(id), Some(model)) = (name, params.take("model")) else {
            return Ok(None);
        };
        Ok(Some(Self {
            at,
            id: id.text().unwrap_or_default().to_owned(),
            model: model.text().unwrap_or_default().to_owned(),
            params,
            info,
            rest,
        }))
    }

    fn is_wildcard(&self) -> bool {
        self.id.contains('*') || self.model.contains('*')
    }
}

struct Deployments<'a> {
    known: &'a KnownModels,
    notes: &'a mut ImportNotes,
    environment: ImportEnvironment,
    credentials: BTreeMap<String, Node>,
    /// Names and settings of providers.
    providers: Vec<(String, String)>,
    groups: Vec<ModelGroup>,
    /// The deployments of each model in the file, and those among them that are missing.
    tallies: Vec<MissingUpstreams>,
}

impl Deployments<'_> {
    fn add(&mut self, mut entry: DeploymentEntry) {
        let deployment = self.deployment(&mut entry);
        let DeploymentEntry {
            at,
            id,
            model,
            params,
            info,
            rest,
        } = entry;
        self.tally(&id, deployment.is_err());
        let deployment = match deployment {
            Ok(deployment) => deployment,
            Err(why) => {
                self.notes
                    .leave_out(at, format!("the deployment {model:?} of {id:?}: {why}"));
                return;
            }
        };
        params.leave_out(self.notes, |key| hints::why("litellm_params", key));
        info.leave_out(self.notes, |key| hints::why("model_info", key));
        rest.leave_out(self.notes, |key| hints::why("litellm_params", key));
        match self.groups.iter_mut().find(|group| group.id == id) {
            Some(group) => group.deployments.push(deployment),
            None => self.groups.push(ModelGroup {
                id,
                aliases: Vec::new(),
                deployments: vec![deployment],
                fallbacks: Vec::new(),
            }),
        }
    }

    /// Counts a deployment of a model.
    fn tally(&mut self, id: &str, is_missing: bool) {
        let missing = usize::from(is_missing);
        match self.tallies.iter_mut().find(|tally| tally.id == id) {
            Some(tally) => {
                tally.all += 1;
                tally.missing += missing;
            }
            None => self.tallies.push(MissingUpstreams {
                id: id.to_owned(),
                missing,
                all: 1,
            }),
        }
    }

    /// Adds a deployment for each known model of wildcards. As with LiteLLM, a model of its own name has precedence.
    fn add_wildcards(&mut self, wildcards: Vec<DeploymentEntry>) {
        let named: Vec<_> = self.groups.iter().map(|group| group.id.clone()).collect();
        for entry in wildcards {
            let DeploymentEntry { at, id, model, .. } = &entry;
            let matches = match (id.split_once('*'), model.split_once('*')) {
                (Some((start, end)), Some(pattern)) if !end.contains('*') => {
                    let matches = self.known.matches(pattern).into_iter();
                    let matches = matches.map(|(name, part)| (format!("{start}{part}{end}"), name));
                    matches.collect()
                }
                _ => Vec::new(),
            };
            if matches.is_empty() {
                self.tally(id, true);
                self.notes.leave_out(
                    at,
                    format!(
                        "the deployment {model:?} of {id:?}: weir has no wildcards, and knows no models of this one: \
                         list each model, or import with `--prices`"
                    ),
                );
                continue;
            }
            self.notes.change(
                at,
                format!(
                    "weir has no wildcards: {id:?} became its {} known models",
                    matches.len()
                ),
            );
            // The notes on parameters are the same for each model.
            let notes = std::mem::take(self.notes);
            for (id, model) in matches {
                if !named.contains(&id) {
                    self.add(DeploymentEntry {
                        id,
                        model,
                        ..entry.clone()
                    });
                }
            }
            let own = std::mem::replace(self.notes, notes);
            self.notes.merge(own);
        }
    }

    fn deployment(&mut self, entry: &mut DeploymentEntry) -> Result<Deployment, String> {
        let DeploymentEntry {
            at,
            id,
            model,
            params,
            info,
            ..
        } = entry;
        if let Some(named) = params.take("litellm_credential_name") {
            let name = named.text().unwrap_or_default();
            let values = self.credentials.get(name);
            let values = values.ok_or_else(|| format!("`credential_list` has no {name:?}"))?;
            params.add_missing(YamlFields::of(Some(values.clone()))?);
        }
        // Parameters of a deployment that weir cannot reach are not in the notes.
        let mut notes = ImportNotes::default();
        let connection = connect(model, params, &mut self.environment, &mut notes)?;
        let place = DeploymentPlace {
            at,
            group: id,
            names: [model, connection.model.as_str()],
        };
        let terms = self.known.terms(place, params, info, &mut notes)?;
        let mut weights = [None; 3];
        for (index, metric) in ["weight", "rpm", "tpm"].into_iter().enumerate() {
            let Some(node) = params.take(metric) else {
                continue;
            };
            weights[index] = node.number().filter(|weight| *weight >= 0.0);
            if metric != "weight" {
                notes.change(
                    node.at,
                    "upstreams have no own rate limits: it only weights the upstreams of a model, if `weight` is not set",
                );
            }
        }
        let order = params.take("order").and_then(|order| order.whole());
        self.notes.merge(notes);
        let provider = self.provider(&connection.vendor, connection.settings);
        Ok(Deployment {
            at: at.to_owned(),
            provider,
            model: connection.model,
            is_vendors_own: connection.is_vendors_own,
            uses_responses: connection.uses_responses,
            terms,
            weights,
            order,
        })
    }

    /// Returns the name of the provider with these settings.
    fn provider(&mut self, vendor: &str, settings: String) -> String {
        let mut all = self.providers.iter();
        if let Some((name, _)) = all.find(|(_, other)| *other == settings) {
            return name.clone();
        }
        let is_free = |name: &String| self.providers.iter().all(|(other, _)| other != name);
        let mut names = (1..).map(|number| match number {
            1 => vendor.to_owned(),
            _ => format!("{vendor}-{number}"),
        });
        let name = names.find(is_free).expect("the numbers do not end");
        self.providers.push((name.clone(), settings));
        name
    }
}

/// Adds the aliases of model groups.
fn add_aliases(
    groups: &mut [ModelGroup],
    node: Option<Node>,
    notes: &mut ImportNotes,
) -> Result<(), String> {
    for (alias, node) in YamlFields::of(node)?.take_all(|_| true) {
        let at = node.at.clone();
        let target = match &node.value {
            YamlValue::Mapping(_) => YamlFields::of(Some(node))?.take("model"),
            _ => Some(node),
        };
        let target = target.as_ref().and_then(Node::text).unwrap_or_default();
        if groups.iter().any(|group| group.id == alias) {
            notes.leave_out(at, format!("{alias:?} is also the name of a model"));
            continue;
        }
        match groups.iter_mut().find(|group| group.id == target) {
            Some(group) => group.aliases.push(alias),
            None => notes.leave_out(at, format!("the configuration has no model {target:?}")),
        }
    }
    Ok(())
}

/// Adds the fallbacks to other groups, which become further upstreams.
fn add_fallbacks(
    groups: &mut [ModelGroup],
    router: &mut YamlFields,
    settings: &mut YamlFields,
    route: &str,
    notes: &mut ImportNotes,
) -> Result<(), String> {
    // The settings of the router have precedence.
    let mut take = |name| {
        let (own, other) = (router.take(name), settings.take(name));
        own.or(other)
    };
    let (fallbacks, defaults) = (take("fallbacks"), take("default_fallbacks"));
    let all = [&fallbacks, &defaults].into_iter().flatten();
    if route != "weight" {
        for node in all {
            notes.leave_out(
                &node.at,
                format!("with the order {route:?}, further upstreams would not be the last ones"),
            );
        }
        return Ok(());
    }
    let ids: Vec<_> = groups.iter().map(|group| group.id.clone()).collect();
    let mut names_of = |targets: &Node| {
        let mut names = Vec::new();
        for target in targets.items() {
            match target.text() {
                Some(name) if ids.iter().any(|id| id == name) => names.push(name.to_owned()),
                Some(name) => {
                    notes.leave_out(
                        &target.at,
                        format!("the configuration has no model {name:?}"),
                    );
                }
                None => notes.leave_out(&target.at, "a fallback has no parameters of its own"),
            }
        }
        names
    };
    let mut by_model: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut unknown = Vec::new();
    for node in fallbacks.iter().flat_map(Node::items) {
        for (model, targets) in YamlFields::of(Some(node.clone()))?.take_all(|_| true) {
            if model != "*" && !groups.iter().any(|group| group.id == model) {
                unknown.push((
                    targets.at,
                    format!("the configuration has no model {model:?}"),
                ));
                continue;
            }
            let names = names_of(&targets);
            by_model.entry(model).or_insert(names);
        }
    }
    let general = by_model.remove("*");
    let defaults = defaults.as_ref().map(names_of);
    let general = general.or(defaults).unwrap_or_default();
    notes.left_out.extend(unknown);
    for group in groups {
        let own = by_model.remove(&group.id);
        let mut fallbacks = own.unwrap_or_else(|| general.clone());
        fallbacks.retain(|name| *name != group.id);
        group.fallbacks = fallbacks;
    }
    Ok(())
}
