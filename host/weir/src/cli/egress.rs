//! `weir egress check`: tests the egress guard's decisions about URLs before a tool depends on them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use weir_app::config::Config;
use weir_egress::EgressPolicy;
use weir_egress::cases::{self, Case, Disagreement};
use weir_tools::rules::Rules;

/// Exit code for unreadable input: no case was checked.
const UNREADABLE: u8 = 2;

#[derive(clap::Subcommand)]
pub(super) enum EgressCommand {
    /// Run the egress guard over a file of cases, and print each case that it decides differently.
    ///
    /// No request is sent and no name is resolved: the cases give the names, servers and redirects. The exit code is 1
    /// if the guard disagrees with a case, and 2 if the file cannot be read. tests/egress/README.md in weir's source
    /// describes the file format.
    Check(CheckArguments),
}

#[derive(clap::Args)]
pub(super) struct CheckArguments {
    /// A file with one case in JSON on each line; `-` for standard input.
    file: PathBuf,
    /// Use the configured policy of this tool instead of each case's own policy.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
}

pub(super) async fn run(command: EgressCommand, config: Option<&Path>) -> ExitCode {
    let EgressCommand::Check(arguments) = command;
    let read = || {
        anyhow::Ok((
            policy(arguments.tool.as_deref(), config)?,
            read(&arguments.file)?,
        ))
    };
    let (policy, cases) = match read() {
        Ok(read) => read,
        Err(error) => {
            eprintln!("weir: {error:#}");
            return ExitCode::from(UNREADABLE);
        }
    };
    let mut disagreements = 0;
    for case in &cases {
        if let Some(Disagreement { expected, found }) = case.disagreement(policy.as_ref()).await {
            disagreements += 1;
            println!(
                "{}: expected {expected}; the guard decided {found}",
                case.id
            );
        }
    }
    println!("{} cases, {disagreements} disagreements", cases.len());
    match disagreements {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn policy(tool: Option<&str>, config: Option<&Path>) -> anyhow::Result<Option<EgressPolicy>> {
    let Some(tool) = tool else {
        return Ok(None);
    };
    let config = Config::load(config)?;
    // Cases bring their own credentials.
    let rules = Rules::read(config.tools(), |_| None);
    let rules = match rules {
        Ok(rules) => rules,
        Err(problems) => bail!("the configuration is invalid: {}", problems.join("; ")),
    };
    let policy = rules.policy(tool);
    let policy = policy.with_context(|| {
        format!("the configuration has no `tools.{tool}` with hosts or webhooks")
    })?;
    Ok(Some(policy.clone()))
}

fn read(file: &Path) -> anyhow::Result<Vec<Case>> {
    let shown = || file.display().to_string();
    let mut bytes = Vec::new();
    match file.to_str() {
        Some("-") => std::io::stdin().read_to_end(&mut bytes),
        _ => std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut bytes)),
    }
    .with_context(shown)?;
    let cases = cases::read(&bytes).with_context(shown)?;
    ensure!(!cases.is_empty(), "{}: the file contains no case", shown());
    Ok(cases)
}
