//! Examples that use a key in programs and libraries, ready to paste.

use http::{HeaderMap, header};
use weir_app::App;
use weir_catalog::{Catalog, Model};
use weir_sandbox::adapter::WorkKind;

/// A program or a library, and its configuration.
pub(super) struct Snippet {
    /// Unique on the page.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) text: String,
}

/// Returns the name under which a request reached this gateway, if it is legal.
pub(super) fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::HOST)?.to_str().ok()
}

/// Returns the address of this gateway, as the browser knows it.
pub(super) fn base(app: &App, host: Option<&str>) -> String {
    let scheme = match app.config.is_dev() && app.tls.is_none() {
        true => "http",
        false => "https",
    };
    format!("{scheme}://{}", host.unwrap_or("localhost"))
}

/// Returns a model for examples: the first one for chats, or any.
pub(super) fn model(catalog: &Catalog) -> String {
    let chats = |model: &&Model| model.kind == WorkKind::Chat && !model.makes_images();
    let model = catalog
        .models()
        .find(chats)
        .or_else(|| catalog.models().next());
    model.map(|model| model.id.to_string()).unwrap_or_default()
}

/// Returns all snippets for a gateway's address, a key and a model.
pub(super) fn of(base: &str, key: &str, model: &str) -> Vec<Snippet> {
    let snippet = |id, title, text: String| Snippet { id, title, text };
    vec![
        snippet(
            "curl",
            "curl",
            format!(
                "curl {base}/v1/chat/completions \\\n  -H 'Authorization: Bearer {key}' \\\n  \
                 -H 'Content-Type: application/json' \\\n  \
                 -d '{{\"model\":\"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello!\"}}]}}'"
            ),
        ),
        snippet(
            "openai",
            "OpenAI (Python)",
            format!(
                "from openai import OpenAI\n\nclient = OpenAI(base_url=\"{base}/v1\", api_key=\"{key}\")\n\
                 answer = client.chat.completions.create(\n    model=\"{model}\",\n    \
                 messages=[{{\"role\": \"user\", \"content\": \"Hello!\"}}],\n)\n\
                 print(answer.choices[0].message.content)"
            ),
        ),
        snippet(
            "anthropic",
            "Anthropic (Python)",
            format!(
                "from anthropic import Anthropic\n\nclient = Anthropic(base_url=\"{base}\", api_key=\"{key}\")\n\
                 answer = client.messages.create(\n    model=\"{model}\",\n    max_tokens=1024,\n    \
                 messages=[{{\"role\": \"user\", \"content\": \"Hello!\"}}],\n)\nprint(answer.content[0].text)"
            ),
        ),
        snippet(
            "claude-code",
            "Claude Code",
            format!(
                "export ANTHROPIC_BASE_URL={base}\nexport ANTHROPIC_AUTH_TOKEN={key}\n\
                 export ANTHROPIC_MODEL={model}\nclaude"
            ),
        ),
        snippet(
            "codex",
            "Codex",
            format!(
                "# ~/.codex/config.toml; the key: export WEIR_API_KEY={key}\nmodel = \"{model}\"\n\
                 model_provider = \"weir\"\n\n[model_providers.weir]\nname = \"weir\"\n\
                 base_url = \"{base}/v1\"\nenv_key = \"WEIR_API_KEY\"\nwire_api = \"responses\""
            ),
        ),
        snippet(
            "vercel",
            "Vercel AI SDK",
            format!(
                "import {{ createOpenAICompatible }} from \"@ai-sdk/openai-compatible\";\n\
                 import {{ generateText }} from \"ai\";\n\nconst weir = createOpenAICompatible({{\n  name: \"weir\",\n  \
                 baseURL: \"{base}/v1\",\n  apiKey: \"{key}\",\n}});\n\
                 const {{ text }} = await generateText({{ model: weir(\"{model}\"), prompt: \"Hello!\" }});\n\
                 console.log(text);"
            ),
        ),
    ]
}
