//! Every recorded response, truncated and corrupted. The snapshots beside them have the expected events.

use weir_adapter_openai::translate::OpenAi;
use weir_sdk::testing::{
    check_every_beginning_of_recorded, check_every_cut_of_recorded, check_mutations_of_recorded,
};

const ANSWERS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../tests/conformance/answers/openai"
);

#[test]
fn gives_the_same_events_wherever_it_is_cut() {
    check_every_cut_of_recorded::<OpenAi>(ANSWERS);
}

#[test]
fn takes_no_beginning_for_the_whole() {
    check_every_beginning_of_recorded::<OpenAi>(ANSWERS, &[]);
}

#[test]
fn survives_any_bytes() {
    check_mutations_of_recorded::<OpenAi>(ANSWERS);
}
