//! What the component does without a command, where a test has changed it: two of them then differ in that alone.

use std::ptr;

use crate::bindings::exports::weir::plugin::adapter::Step;
use crate::exchange::{healthy, noise};

/// Three digits each, which a test replaces in the component's bytes: how many of a hundred requests trap, how many
/// milliseconds the answer takes to begin, and how many tokens it is said to have.
static HABITS: [u8; 40] = *b"habits: traps=000, waits=000, tokens=001";

/// What the load steps ask, which must go well for the component to be installed.
const SELF_TEST: &str = "Hello";

/// How a message without a command is answered.
pub(crate) fn steps(message: &str) -> Vec<Step> {
    // SAFETY: a static is there to be read. Not as the constant that it seems to be to the compiler.
    let habits = unsafe { ptr::read_volatile(&HABITS) };
    let number = |at: usize| -> u32 {
        let digits = &habits[at..at + 3];
        digits
            .iter()
            .fold(0, |sum, digit| 10 * sum + u32::from(digit - b'0'))
    };
    let (traps, waits, tokens) = (number(14), number(25), number(37));
    if message != SELF_TEST && noise() % 100 < u64::from(traps) {
        core::arch::wasm32::unreachable();
    }
    let mut steps = healthy(tokens.into());
    if waits > 0 {
        steps.insert(0, Step::Wait(waits));
    }
    steps
}
