//! How far a start is with compiling the plugins that the binary brings.
//!
//! Their code is kept, so that only the first start of a version compiles. It takes seconds, in which operators and load
//! balancers want to know why nothing is served.

use std::sync::{Arc, Mutex, PoisonError};

/// How far it is, and who is told. Cheap to clone.
#[derive(Clone)]
pub struct CompileProgress(Arc<Inner>);

struct Inner {
    tell: fn(&str),
    counts: Mutex<Counts>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    all: usize,
    done: usize,
}

impl Default for CompileProgress {
    fn default() -> Self {
        Self::telling(|_| {})
    }
}

impl CompileProgress {
    /// Progress of which somebody is told in lines.
    pub fn telling(tell: fn(&str)) -> Self {
        Self(Arc::new(Inner {
            tell,
            counts: Mutex::default(),
        }))
    }

    /// So many plugins are about to be compiled.
    pub(super) fn begin(&self, all: usize) {
        if all == 0 {
            return;
        }
        self.change(|counts| counts.all = all);
        (self.0.tell)(&format!(
            "compiling {}, once: their code is kept",
            plugins(all)
        ));
    }

    /// One of them is compiled.
    pub(super) fn compiled(&self, name: &str) {
        let Counts { all, done } = self.change(|counts| counts.done += 1);
        (self.0.tell)(&format!("compiled {name}: {done} of {all}"));
    }

    /// How far it is, as a sentence; `None` if nothing is to be compiled, or all is done.
    pub fn sentence(&self) -> Option<String> {
        let Counts { all, done } = self.change(|_| {});
        (done < all).then(|| {
            format!(
                "It is compiling {}, once; {done} of {all} are done.",
                plugins(all)
            )
        })
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) -> Counts {
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
