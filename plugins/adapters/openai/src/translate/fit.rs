//! The rules of Chat Completions and Responses, in the words of OpenAI's errors.

use weir_sdk::fit::{Alphabet, JsonMode, Name, Rules, StrictSchemas, ToolSchemas};

use super::options::Options;
use super::{DIALECT, completions, responses};

/// The longest id of an end user, in characters of ASCII.
const MAX_END_USER: usize = 64;

/// Returns the rules for a client of this dialect. Clients of OpenAI's dialects know OpenAI's rules, and this server may have fewer.
pub(super) fn rules(client_dialect: &str, options: &Options<'_>) -> Rules {
    if client_dialect == completions::DIALECT {
        return Rules {
            takes_sampling: options.takes_sampling,
            ..Rules::NONE
        };
    }
    let common = Rules {
        // "string too long. Expected a string with maximum length 64", "does not match … '^[a-zA-Z0-9_-]+$'".
        tool_name: Some(Name {
            most: 64,
            alphabet: Alphabet::Plain,
        }),
        call_id: Some(Name {
            // "Invalid 'messages[36].tool_calls[0].id': string too long. Expected a string with maximum length 40". Responses has 64.
            most: if options.uses_responses { 64 } else { 40 },
            alphabet: Alphabet::Any,
        }),
        // "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."
        pairs_results: true,
        has_media_in_results: options.uses_responses,
        has_opaque_blocks: match options.uses_responses {
            true => client_dialect == responses::DIALECT,
            false => client_dialect == DIALECT,
        },
        takes_sampling: options.takes_sampling,
        ..Rules::NONE
    };
    if client_dialect == DIALECT || client_dialect == responses::DIALECT {
        return common;
    }
    Rules {
        // "Invalid 'stop': array too long. Expected an array with maximum length 4".
        most_stops: if options.uses_responses {
            usize::MAX
        } else {
            4
        },
        // "'messages' must contain the word 'json' in some form".
        json_mode: JsonMode::NeedsWord,
        most_end_user_bytes: MAX_END_USER,
        // "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level", "object schema
        // missing properties", "array schema missing items".
        tool_schemas: ToolSchemas::ObjectsWithProperties,
        // "'required' is required to be supplied and to be an array including every key in properties".
        strict_schemas: StrictSchemas::AllRequired,
        ..common
    }
}
