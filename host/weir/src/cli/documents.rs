//! Documents about the command line: shell completions and manual pages.

use std::path::Path;

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;

/// `weir completions`, of this command line.
pub(super) fn completions(all: &Command, shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(all), "weir", &mut script);
    print!("{}", String::from_utf8_lossy(&script));
    Ok(())
}

/// Returns the command line without hidden commands: shells would complete them, too.
fn shown(all: &Command) -> Command {
    let shown = all
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    Command::new("weir")
        .args(all.get_arguments().cloned())
        .subcommands(shown.cloned())
}

/// `weir man`: writes `weir.1`, `weir-key.1`, `weir-key-create.1` and so on.
pub(super) fn manual(mut all: Command, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("creating the folder {}", folder.display()))?;
    // Building sets the full command name on each page.
    all.build();
    let written =
        write_pages(&all, folder).with_context(|| format!("writing into {}", folder.display()))?;
    println!("Wrote {written} manual pages to {}.", folder.display());
    Ok(())
}

/// Writes the pages of a command and its subcommands; returns the number of pages.
fn write_pages(command: &Command, folder: &Path) -> std::io::Result<usize> {
    clap_mangen::Man::new(command.clone()).generate_to(folder)?;
    let shown = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set() && below.get_name() != "help");
    let mut written = 1;
    for below in shown {
        written += write_pages(below, folder)?;
    }
    Ok(written)
}
