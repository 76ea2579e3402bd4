//! What `weir plugin check` found: a table for people, JSON for programs.

use serde::Serialize;
use serde_json::{Value, json};
use weir_sandbox::printable;

use crate::cli::table::TextTable;

/// Bytes of what is said of one check.
const DETAIL_BYTES: usize = 1 << 10;

/// What came of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Passed,
    Failed,
    /// There was nothing to try it with, or an earlier one failed.
    Skipped,
}

#[derive(Serialize)]
struct Check {
    check: String,
    result: Verdict,
    /// What was tried; or what is wrong.
    detail: String,
    /// What the author should read where it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<&'static str>,
}

/// All that was found.
#[derive(Default)]
pub(super) struct Report {
    /// Which component, and what it says of itself.
    component: Value,
    checks: Vec<Check>,
    cost: Option<Value>,
}

impl Report {
    pub(super) fn of(component: Value) -> Self {
        Self {
            component,
            ..Self::default()
        }
    }

    /// Adds what is known of the component.
    pub(super) fn describe(&mut self, name: &str, value: Value) {
        self.component[name] = value;
    }

    pub(super) fn pass(&mut self, check: &str, detail: impl Into<String>) {
        self.add(check, Verdict::Passed, detail.into(), None);
    }

    pub(super) fn skip(&mut self, check: &str, why: &str) {
        self.add(check, Verdict::Skipped, why.to_owned(), None);
    }

    pub(super) fn fail(&mut self, check: &str, why: &str, read: &'static str) {
        self.add(check, Verdict::Failed, why.to_owned(), Some(read));
    }

    /// Passes, unless some of what was tried went wrong.
    pub(super) fn judge(&mut self, check: &str, detail: impl Into<String>, faults: Vec<Fault>) {
        if faults.is_empty() {
            return self.pass(check, detail);
        }
        for Fault { of, why, read } in faults {
            self.fail(check, &format!("{of}: {why}"), read);
        }
    }

    pub(super) fn cost(&mut self, cost: Value) {
        self.cost = Some(cost);
    }

    pub(super) fn failures(&self) -> usize {
        let failed = self.checks.iter();
        failed
            .filter(|check| check.result == Verdict::Failed)
            .count()
    }

    pub(super) fn print_json(&self) {
        let report = json!({
            "component": self.component,
            "checks": self.checks,
            "cost": self.cost,
            "passed": self.failures() == 0,
        });
        println!("{report:#}");
    }

    pub(super) fn print_table(&self) {
        let mut table = TextTable::new(&["CHECK", "RESULT", "WHAT"]);
        for Check {
            check,
            result,
            detail,
            ..
        } in &self.checks
        {
            let result = match result {
                Verdict::Passed => "ok",
                Verdict::Failed => "FAILED",
                Verdict::Skipped => "-",
            };
            table.row([check.clone(), result.to_owned(), detail.clone()]);
        }
        table.print();
        let mut read: Vec<_> = self.checks.iter().filter_map(|check| check.read).collect();
        read.sort_unstable();
        read.dedup();
        if !read.is_empty() {
            println!("\nRead:");
        }
        for read in read {
            println!("  {read}");
        }
    }

    fn add(&mut self, check: &str, result: Verdict, detail: String, read: Option<&'static str>) {
        self.checks.push(Check {
            check: check.to_owned(),
            result,
            detail: printable(&detail, DETAIL_BYTES),
            read,
        });
    }
}

/// Something that went wrong.
#[derive(Debug)]
pub(super) struct Fault {
    /// With which request, recording or cut.
    pub(super) of: String,
    pub(super) why: String,
    /// What the author should read.
    pub(super) read: &'static str,
}
