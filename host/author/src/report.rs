//! The report of `weir plugin check`.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};
use weir_sandbox::printable;

/// Bytes of the detail of one check.
const DETAIL_BYTES: usize = 1 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckResult {
    /// No fault was found.
    Passed,
    /// The component breaks a rule.
    Failed,
    /// There was no input for the check, or an earlier check failed.
    Skipped,
}

#[derive(Debug, Serialize)]
pub struct CheckItem {
    pub check: String,
    pub result: CheckResult,
    /// The scope of the check, or the fault.
    pub detail: String,
    /// The documentation that explains a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<&'static str>,
}

#[derive(Debug)]
pub struct CheckReport {
    file: PathBuf,
    /// The file, the size, the kind and the description of the component.
    component: Value,
    checks: Vec<CheckItem>,
    cost: Option<Value>,
}

impl CheckReport {
    pub(crate) fn new(file: PathBuf) -> Self {
        Self {
            component: json!({ "file": file.display().to_string() }),
            file,
            checks: Vec::new(),
            cost: None,
        }
    }

    /// Returns the component's file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the checks in the order in which they ran.
    pub fn checks(&self) -> &[CheckItem] {
        &self.checks
    }

    /// Returns how many checks failed.
    pub fn failures(&self) -> usize {
        let failed = self.checks.iter();
        failed
            .filter(|check| check.result == CheckResult::Failed)
            .count()
    }

    /// Returns the documentation that explains the faults, each title once.
    pub fn reading_list(&self) -> Vec<&'static str> {
        let mut read: Vec<_> = self.checks.iter().filter_map(|check| check.read).collect();
        read.sort_unstable();
        read.dedup();
        read
    }

    pub fn to_json(&self) -> Value {
        json!({
            "component": self.component,
            "checks": self.checks,
            "cost": self.cost,
            "passed": self.failures() == 0,
        })
    }

    /// Adds a fact about the component.
    pub(crate) fn describe(&mut self, name: &str, value: Value) {
        self.component[name] = value;
    }

    pub(crate) fn pass(&mut self, check: &str, detail: impl Into<String>) {
        self.add(check, CheckResult::Passed, detail.into(), None);
    }

    pub(crate) fn skip(&mut self, check: &str, why: &str) {
        self.add(check, CheckResult::Skipped, why.to_owned(), None);
    }

    pub(crate) fn fail(&mut self, check: &str, why: &str, read: &'static str) {
        self.add(check, CheckResult::Failed, why.to_owned(), Some(read));
    }

    /// Adds one passed check, or one failed check for each fault.
    pub(crate) fn judge(
        &mut self,
        check: &str,
        detail: impl Into<String>,
        faults: Vec<ComponentFault>,
    ) {
        if faults.is_empty() {
            return self.pass(check, detail);
        }
        for ComponentFault { of, why, read } in faults {
            self.fail(check, &format!("{of}: {why}"), read);
        }
    }

    pub(crate) fn cost(&mut self, cost: Value) {
        self.cost = Some(cost);
    }

    fn add(
        &mut self,
        check: &str,
        result: CheckResult,
        detail: String,
        read: Option<&'static str>,
    ) {
        self.checks.push(CheckItem {
            check: check.to_owned(),
            result,
            detail: printable(&detail, DETAIL_BYTES),
            read,
        });
    }
}

#[derive(Debug)]
pub(crate) struct ComponentFault {
    /// The request, recording or cut that shows the fault.
    pub(crate) of: String,
    pub(crate) why: String,
    /// The documentation that explains the rule.
    pub(crate) read: &'static str,
}
