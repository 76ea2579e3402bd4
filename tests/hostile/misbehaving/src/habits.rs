//! The component's behaviour without a command, which a test can change: two such components differ in that alone.

use std::ptr;

use crate::bindings::exports::weir::plugin::adapter::Step;
use crate::exchange::{healthy, noise};

/// Three digits each, which a test replaces in the component's bytes: traps in a hundred requests, milliseconds
/// before the response begins, and reported tokens.
static HABITS: [u8; 40] = *b"habits: traps=000, waits=000, tokens=001";

/// The message of the load steps, which must succeed for the component to be installed.
const SELF_TEST: &str = "Hello";

/// Returns the response to a message without a command.
pub(crate) fn steps(message: &str) -> Vec<Step> {
    // SAFETY: a static is always readable. The volatile read keeps the compiler from treating it as a constant.
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
