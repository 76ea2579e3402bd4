//! `weir plugin new`.

use std::path::PathBuf;

use clap::ValueEnum;
use weir_author::new::{Language, NewProject};
use weir_plugins::PluginKind;

use crate::cli::bundle::bundle;

#[derive(clap::Args)]
pub(in crate::cli) struct NewPluginArguments {
    /// The name: lower-case letters, digits, - and _, with a letter first.
    #[arg(value_name = "NAME")]
    name: String,
    /// The kind of plugin.
    #[arg(long, value_enum, default_value_t = KindArgument::Adapter)]
    kind: KindArgument,
    /// The language.
    #[arg(long, value_enum, default_value_t = LanguageArgument::Rust)]
    lang: LanguageArgument,
    /// The new folder. Default: ./NAME.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KindArgument {
    Adapter,
    Tool,
    Filter,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LanguageArgument {
    Rust,
    Js,
    Python,
}

pub(super) fn run(arguments: NewPluginArguments) -> anyhow::Result<()> {
    let NewPluginArguments {
        name,
        kind,
        lang,
        folder,
    } = arguments;
    let project = NewProject {
        kind: match kind {
            KindArgument::Adapter => PluginKind::Adapter,
            KindArgument::Tool => PluginKind::Tool,
            KindArgument::Filter => PluginKind::Filter,
        },
        language: match lang {
            LanguageArgument::Rust => Language::Rust,
            LanguageArgument::Js => Language::JavaScript,
            LanguageArgument::Python => Language::Python,
        },
        folder: folder.unwrap_or_else(|| PathBuf::from(&name)),
        name,
    };
    project.create(bundle())?;
    let (shown, name) = (project.folder.display(), &project.name);
    println!("Created {shown}. Next:\n");
    println!("  cd {shown}");
    println!("  weir plugin build");
    println!("  weir plugin check dist/{name}.wasm --recordings recordings");
    Ok(())
}
