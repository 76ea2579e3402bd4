//! The rules of Ollama.

use weir_sdk::fit::Rules;

pub(super) const RULES: Rules = Rules {
    // "cannot unmarshal string into Go struct field … of type api.ToolCallFunctionArguments".
    needs_object_arguments: true,
    pairs_results: true,
    // A message has images, a result has a text.
    has_media_in_results: false,
    has_participants: false,
    has_opaque_blocks: false,
    ..Rules::NONE
};
