//! The progress of a start in compiling the bundled plugins.
//!
//! Compiled code is cached, so only the first start of a version compiles. The compilation takes seconds, in which
//! operators and load balancers need the reason for the delay.

use std::sync::{Arc, Mutex, PoisonError};

/// The progress and its listener. Cheap to clone.
#[derive(Clone)]
pub struct CompileProgress(Arc<ProgressInner>);

struct ProgressInner {
    tell: fn(&str),
    counts: Mutex<ProgressCounts>,
}

#[derive(Clone, Copy, Default)]
struct ProgressCounts {
    all: usize,
    done: usize,
}

impl Default for CompileProgress {
    fn default() -> Self {
        Self::telling(|_| {})
    }
}

impl CompileProgress {
    /// Progress that is also reported in lines.
    pub fn telling(tell: fn(&str)) -> Self {
        Self(Arc::new(ProgressInner {
            tell,
            counts: Mutex::default(),
        }))
    }

    /// Begins the compilation of this many plugins.
    pub(super) fn begin(&self, all: usize) {
        if all == 0 {
            return;
        }
        self.change(|counts| counts.all = all);
        (self.0.tell)(&format!(
            "compiling {}, once: their code is cached",
            plugins(all)
        ));
    }

    /// Notes a compiled plugin.
    pub(super) fn compiled(&self, name: &str) {
        let ProgressCounts { all, done } = self.change(|counts| counts.done += 1);
        (self.0.tell)(&format!("compiled {name}: {done} of {all}"));
    }

    /// Describes the progress in a sentence; `None` if no compilation is pending.
    pub fn sentence(&self) -> Option<String> {
        let ProgressCounts { all, done } = self.change(|_| {});
        (done < all).then(|| {
            format!(
                "It is compiling {}, once; {done} of {all} are done.",
                plugins(all)
            )
        })
    }

    fn change(&self, change: impl FnOnce(&mut ProgressCounts)) -> ProgressCounts {
        let mut counts = self.0.counts.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut counts);
        *counts
    }
}

fn plugins(count: usize) -> String {
    match count {
        1 => "1 plugin".to_owned(),
        _ => format!("{count} plugins"),
    }
}
