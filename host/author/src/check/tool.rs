//! The checks of a tool: the author's recordings, each twice.

use std::time::Instant;

use serde_json::json;
use weir_sandbox::tool::LoadedTool;

use super::difference::difference;
use super::input::SuiteInput;
use crate::recordings::AuthorRecording;
use crate::report::{CheckReport, ComponentFault};
use crate::try_tool;

const ABOUT_CALLS: &str =
    "wit/tool.wit: call, record description; plugins/README.md: Writing a tool";
const ABOUT_OWN: &str = "plugins/README.md: Check it";

pub(crate) struct ToolSuite<'a> {
    tool: &'a LoadedTool,
    input: &'a SuiteInput<'a>,
}

/// The result of one call.
struct ToolRun {
    printed: String,
    /// The error, unless the tool itself reported a failure.
    fault: Option<String>,
}

impl<'a> ToolSuite<'a> {
    pub(crate) fn new(tool: &'a LoadedTool, input: &'a SuiteInput<'a>) -> Self {
        Self { tool, input }
    }

    pub(crate) async fn run(self, report: &mut CheckReport) -> anyhow::Result<()> {
        if self.input.recordings.is_empty() {
            report.skip(
                "own recordings",
                "there are none; to add some, use --recordings DIR",
            );
            return Ok(());
        }
        let (mut differing, mut compared, mut slowest_us) = (Vec::new(), 0, 0);
        for own in self.input.recordings {
            let check = format!("recording {}", own.name);
            let Some(arguments) = own.tool_arguments() else {
                let why = format!("it has no arguments: {}.json is missing", own.name);
                report.fail(&check, &why, ABOUT_OWN);
                continue;
            };
            let first = self.once(own, &arguments).await;
            let started = Instant::now();
            let second = self.once(own, &arguments).await;
            slowest_us = slowest_us.max(started.elapsed().as_micros());
            compared += 1;
            let fault = |why, read| ComponentFault {
                of: own.name.clone(),
                why,
                read,
            };
            if let Some(why) = difference(&first.printed, &second.printed) {
                differing.push(fault(format!("run again, {why}"), ABOUT_CALLS));
            }
            let mut faults = Vec::from_iter(first.fault.map(|why| fault(why, ABOUT_CALLS)));
            let said = match self.input.compare(own, &first.printed)? {
                Ok(said) => said,
                Err(why) => {
                    faults.push(fault(why, ABOUT_OWN));
                    ""
                }
            };
            let lines = first.printed.lines().count();
            report.judge(&check, format!("{lines} lines; {said}"), faults);
        }
        report.judge(
            "determinism",
            format!("{compared} calls gave the same bytes twice"),
            differing,
        );
        report.pass(
            "cost",
            format!("a fresh instance with the slowest call: {slowest_us} µs"),
        );
        report.cost(json!({ "call_us": slowest_us }));
        Ok(())
    }

    async fn once(&self, own: &AuthorRecording, arguments: &str) -> ToolRun {
        let context = self.input.plugin.context();
        let mut out = Vec::new();
        let outcome = try_tool::run(
            self.tool,
            arguments,
            &context,
            own.responses.clone(),
            &mut out,
        )
        .await;
        let printed = String::from_utf8_lossy(&out).into_owned();
        let is_own_failure = printed
            .lines()
            .last()
            .is_some_and(|line| line.starts_with("{\"failure\""));
        ToolRun {
            fault: match outcome {
                Err(error) if !is_own_failure => Some(error.to_string()),
                _ => None,
            },
            printed,
        }
    }
}
