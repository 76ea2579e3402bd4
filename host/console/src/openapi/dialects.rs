//! The schemas of the clients' dialects, from the types that read and write them, and what endpoints add to them.

use serde_json::{Map, Value, json};

/// The streams: each with the schema of its events' data.
const STREAMS: [(&str, &str, &str); 8] = [
    ("ChatStreamEvent", "ChatCompletionChunk", "Chat Completions"),
    ("TextStreamEvent", "TextCompletion", "Completions"),
    ("ResponsesStreamEvent", "ResponsesEvent", "Responses"),
    ("MessagesStreamEvent", "MessagesEvent", "Messages"),
    ("GeminiStreamEvent", "GeminiAnswer", "Google's Gemini API"),
    ("ImageStreamEvent", "ImageEvent", "Images"),
    ("SpeechStreamEvent", "SpeechEvent", "Speech"),
    ("TranscriptStreamEvent", "TranscriptEvent", "Transcriptions"),
];

/// Adds the schemas to those of the document.
pub(super) fn add(schemas: &mut Map<String, Value>) {
    schemas.extend(weir_dialects::schemas());
    schemas.extend(weir_kinds::schemas());
    add_session(schemas);
    add_agent(schemas);
    for (name, data, dialect) in STREAMS {
        let stream = json!({
            "type": "object",
            "description": format!("An event of a stream in {dialect}. An error within a stream has the data of an error's body."),
            "properties": {
                "id": { "type": "string", "description": "The event's number, in streams that a client can resume." },
                "event": { "type": "string", "description": "The event's kind." },
                "data": {
                    "type": "string",
                    "description": "The event's data, as JSON. Some streams end with `[DONE]`.",
                    "contentMediaType": "application/json",
                    "contentSchema": reference(data),
                },
            },
            "required": ["data"],
        });
        schemas.insert(name.to_owned(), stream);
    }
    let result = json!({
        "description": "A response, a count of tokens, or a stream as a list of its chunks: the method determines it.",
        "anyOf": [
            reference("GeminiAnswer"),
            reference("GeminiTokenCount"),
            { "type": "array", "items": reference("GeminiAnswer") },
        ],
    });
    schemas.insert("GeminiResult".to_owned(), result);
}

/// Adds the field of sessions, which any request in Chat Completions may have.
fn add_session(schemas: &mut Map<String, Value>) {
    schemas["ChatCompletionRequest"]["properties"]["session_id"] = json!({
        "type": ["string", "null"],
        "minLength": 1,
        "maxLength": 256,
        "description": "The id of a conversation that weir keeps for an hour. Then `messages` has only the new messages.",
    });
}

/// Adds a service's request: a request in Chat Completions, with the user who pays.
fn add_agent(schemas: &mut Map<String, Value>) {
    let mut agent = schemas["ChatCompletionRequest"].clone();
    agent["description"] =
        "A service's request in OpenAI's Chat Completions, for the user who pays.".into();
    let id = |description: &str| {
        json!({
            "type": ["string", "null"], "minLength": 1, "maxLength": 256, "description": description,
        })
    };
    agent["properties"]["user_id"] =
        id("The user who pays; default: the user of the `execution_id`.");
    agent["properties"]["task_id"] = id("The task behind the request.");
    agent["properties"]["execution_id"] = json!({
        "type": ["string", "null"],
        "description": "The swarm behind the request; the request uses its user, task and budget.",
    });
    agent["properties"]["step"] = json!({
        "description": "With an `execution_id`: the step of the swarm to which the response belongs.",
    });
    schemas.insert("AgentCompletionRequest".to_owned(), agent);
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}
