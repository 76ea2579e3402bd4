//! Every recorded response, truncated and corrupted. The snapshots beside them have the expected events.
//!
//! The recordings are responses in the shapes of `bedrock-runtime` 2023-09-30 in botocore 1.44.8, with the texts of the Bedrock API
//! reference, framed as botocore's `eventstream.py` reads them.

use weir_adapter_bedrock::translate::Bedrock;
use weir_sdk::testing::{
    check_every_beginning_of_recorded, check_every_cut_of_recorded, check_mutations_of_recorded,
};

const ANSWERS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../tests/conformance/answers/bedrock"
);

#[test]
fn gives_the_same_events_wherever_it_is_cut() {
    check_every_cut_of_recorded::<Bedrock>(ANSWERS);
}

#[test]
fn takes_no_beginning_for_the_whole() {
    check_every_beginning_of_recorded::<Bedrock>(ANSWERS, &[]);
}

#[test]
fn survives_any_bytes() {
    check_mutations_of_recorded::<Bedrock>(ANSWERS);
}
