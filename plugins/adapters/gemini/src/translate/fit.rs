//! The rules of `generateContent`, in the words of its errors.

use weir_sdk::fit::{Alphabet, Name, Rules};

/// The rules for a client of this dialect, which knows the others.
pub(super) const OWN_RULES: Rules = Rules {
    needs_object_arguments: true,
    pairs_results: true,
    ..Rules::NONE
};

pub(super) const RULES: Rules = Rules {
    // "Must start with a letter or an underscore. Must be alphameric …, underscores (_), dots (.) or dashes (-), with a maximum
    // length of 64."
    tool_name: Some(Name {
        most: 64,
        alphabet: Alphabet::Identifier,
    }),
    needs_object_arguments: true,
    // "Please ensure that the number of function response parts is equal to the number of function call parts of the function call
    // turn", and that one "comes immediately after" the other.
    pairs_results: true,
    // "contents is not specified".
    needs_prompt: true,
    // "Please ensure that function call turn comes immediately after a user turn".
    begins_with_user: true,
    has_participants: false,
    has_opaque_blocks: false,
    // `stopSequences`: "up to 5" (ai.google.dev/api/generate-content).
    most_stops: 5,
    most_temperature: 2.0,
    ..Rules::NONE
};
