//! Arguments that several commands of plugin authors share, and their loader.

use weir_app::config::Config;
use weir_author::input::PluginInput;
use weir_author::loading::{self, CodeCachePaths};
use weir_plugins::Loader;

use crate::cli::user_folder::user_folder;

/// The facts that a plugin gets beside its request.
#[derive(clap::Args)]
pub(super) struct PluginArguments {
    /// For a tool: an integration that its agent may call. To add more, repeat the option.
    #[arg(long = "integration", value_name = "ID=URL", value_parser = name_and_value)]
    integrations: Vec<(String, String)>,
    /// For a tool: a webhook of its agent. To add more, repeat the option.
    #[arg(long = "webhook", value_name = "URL")]
    webhooks: Vec<String>,
    /// For a tool: the name of a credential. A credential with the id of an integration belongs to that integration. To add more,
    /// repeat the option.
    #[arg(long = "credential", value_name = "NAME")]
    credentials: Vec<String>,
    /// For a filter: the name of a provider that may serve the request. Default: `provider`. To add more, repeat the option.
    #[arg(long = "provider", value_name = "NAME")]
    providers: Vec<String>,
    /// For an adapter or a filter: an option, like `options` of a provider or a filter in the configuration. To add more, repeat the
    /// option.
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = name_and_value)]
    options: Vec<(String, String)>,
}

impl PluginArguments {
    pub(super) fn to_input(&self) -> PluginInput {
        PluginInput {
            integrations: self.integrations.clone(),
            webhooks: self.webhooks.clone(),
            credentials: self.credentials.clone(),
            providers: self.providers.clone(),
            options: self.options.clone(),
        }
    }
}

/// Makes a loader with the limits of the configuration. Users without a home folder have no cache of compiled code.
pub(super) fn loader(config: &Config) -> anyhow::Result<Loader> {
    loading::loader(&config.plugins, code_cache().as_ref())
}

fn code_cache() -> Option<CodeCachePaths> {
    Some(CodeCachePaths {
        folder: user_folder("XDG_CACHE_HOME", ".cache")?.join("plugins"),
        key: user_folder("XDG_DATA_HOME", ".local/share")?.join("plugin-cache.key"),
    })
}

fn name_and_value(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "is not NAME=VALUE".to_owned())
}
