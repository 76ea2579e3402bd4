//! `weir plugin check`: its arguments, and its report as a table.

use std::path::PathBuf;

use anyhow::bail;
use weir_app::config::Config;
use weir_author::check::{CheckRequest, check};
use weir_author::report::{CheckReport, CheckResult};

use super::input::{PluginArguments, loader};
use crate::cli::bundle::bundle;
use crate::cli::table::TextTable;

#[derive(clap::Args)]
pub(in crate::cli) struct CheckPluginArguments {
    /// The component, or a folder with the component and recordings.
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
    /// A folder of your own recordings.
    ///
    /// NAME.json is a request, or the arguments of a tool. NAME.http is its response, in the format of `curl -i`, and NAME.2.http the
    /// next response. NAME.events has the events of a response, for a filter. NAME.snap has the expected output of
    /// `weir plugin try`. A response without a request is for the simplest request, which asks for a stream if the name ends in
    /// -stream.
    #[arg(long, value_name = "DIR")]
    recordings: Option<PathBuf>,
    /// Write the .snap files that are missing or differ. Read them afterwards.
    #[arg(long)]
    accept: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    input: PluginArguments,
}

pub(super) async fn run(config: Config, arguments: CheckPluginArguments) -> anyhow::Result<()> {
    let request = CheckRequest {
        path: &arguments.path,
        recordings: arguments.recordings.as_deref(),
        accept: arguments.accept,
        input: &arguments.input.to_input(),
        response_bytes: config.limits.exchanges.answer_bytes.get(),
        bundle: bundle(),
    };
    let report = check(&loader(&config)?, &request).await?;
    match arguments.json {
        true => println!("{:#}", report.to_json()),
        false => print_table(&report),
    }
    match report.failures() {
        0 => Ok(()),
        1 => bail!("{}: a check failed", report.file().display()),
        failures => bail!("{}: {failures} checks failed", report.file().display()),
    }
}

fn print_table(report: &CheckReport) {
    let mut table = TextTable::new(&["CHECK", "RESULT", "DETAIL"]);
    for item in report.checks() {
        let result = match item.result {
            CheckResult::Passed => "ok",
            CheckResult::Failed => "FAILED",
            CheckResult::Skipped => "-",
        };
        table.row([item.check.clone(), result.to_owned(), item.detail.clone()]);
    }
    table.print();
    let read = report.reading_list();
    if !read.is_empty() {
        println!("\nRead:");
    }
    for title in read {
        println!("  {title}");
    }
}
