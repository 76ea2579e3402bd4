//! Callgrind's profiles: a text of functions with their costs. Valgrind's manual documents the format.
//!
//! A cost is the function's own. The costs of its callees are on the lines after `calls=`, and are skipped.

use std::collections::{BTreeMap, HashMap};
use std::ops::{AddAssign, Sub};

use super::groups::{Function, Group};

/// Counts of events.
#[derive(Clone, Copy, Default)]
pub(crate) struct Events {
    pub(crate) instructions: f64,
    /// Misses of the first cache of instructions.
    pub(crate) i1_misses: f64,
    /// Writes that miss the first cache of data.
    pub(crate) d1_write_misses: f64,
}

impl Events {
    pub(crate) fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self {
            instructions: change(self.instructions),
            i1_misses: change(self.i1_misses),
            d1_write_misses: change(self.d1_write_misses),
        }
    }
}

impl AddAssign for Events {
    fn add_assign(&mut self, other: Self) {
        self.instructions += other.instructions;
        self.i1_misses += other.i1_misses;
        self.d1_write_misses += other.d1_write_misses;
    }
}

impl Sub for Events {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            instructions: self.instructions - other.instructions,
            i1_misses: self.i1_misses - other.i1_misses,
            d1_write_misses: self.d1_write_misses - other.d1_write_misses,
        }
    }
}

pub(crate) type Costs = BTreeMap<Group, Events>;

/// The names of a kind. A name is written once, as `(ID) NAME`, and later as `(ID)`.
#[derive(Default)]
struct Names(HashMap<u32, String>);

impl Names {
    fn read(&mut self, text: &str) -> u32 {
        let (id, name) = text[1..].split_once(')').expect("names are compressed");
        let id = id.parse().expect("an id is a number");
        if !name.is_empty() {
            self.0.insert(id, name.trim_start().to_owned());
        }
        id
    }

    fn get(&self, id: u32) -> &str {
        self.0.get(&id).map_or("???", |name| name)
    }
}

/// Reads a profile.
pub(crate) fn read(profile: &[u8]) -> Costs {
    let profile = String::from_utf8_lossy(profile);
    let (mut objects, mut files, mut functions) =
        (Names::default(), Names::default(), Names::default());
    let mut costs = Costs::new();
    let mut events: Vec<&str> = Vec::new();
    let (mut object, mut file, mut group) = (0, 0, Group::Other);
    let mut is_of_callee = false;
    for line in profile.lines() {
        if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            if !std::mem::take(&mut is_of_callee) {
                *costs.entry(group).or_default() += read_events(line, &events);
            }
            continue;
        }
        if let Some(names) = line.strip_prefix("events: ") {
            events = names.split(' ').collect();
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        match key {
            "ob" => object = objects.read(value),
            "fl" => file = files.read(value),
            "fn" => {
                let function = functions.read(value);
                group = Group::of(&Function {
                    name: functions.get(function),
                    file: files.get(file),
                    object: objects.get(object),
                });
            }
            // Names of callees, and of the files of inlined code.
            "cob" => _ = objects.read(value),
            "fi" | "fe" | "cfi" | "cfl" => _ = files.read(value),
            "cfn" => _ = functions.read(value),
            "calls" => is_of_callee = true,
            _ => {}
        }
    }
    costs
}

/// Reads a line of costs: a position, and counts in the order of the events, without the last ones if they are zero.
fn read_events(line: &str, events: &[&str]) -> Events {
    let mut total = Events::default();
    for (event, count) in events.iter().zip(line.split(' ').skip(1)) {
        let count: f64 = count.parse().expect("a count is a number");
        match *event {
            "Ir" => total.instructions = count,
            "I1mr" => total.i1_misses = count,
            "D1mw" => total.d1_write_misses = count,
            _ => {}
        }
    }
    total
}
