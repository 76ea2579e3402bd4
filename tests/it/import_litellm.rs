//! `weir import litellm`: weir's configuration from that of LiteLLM's proxy.
//!
//! The files in `import_litellm/` are those of `litellm/proxy/` and `litellm/proxy/example_config_yaml/` of litellm 1.110.2
//! (PyPI, MIT license), unchanged.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::json;
use tempfile::TempDir;
use tests::{Reply, Upstream, chat};

use crate::cli::{Served, folder_with_compiled_plugins, text, weir};
use crate::operate::folder;

/// The output of an import: the configuration, and the notes.
struct Imported {
    toml: String,
    notes: String,
}

/// Imports a file, with further arguments and environment variables.
fn import_with(
    folder: &Path,
    yaml: &str,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Imported {
    fs::write(folder.join("config.yaml"), yaml).expect("the folder can be written");
    let mut command = weir(folder);
    command
        .args(["import", "litellm", "config.yaml"])
        .args(arguments);
    command.envs(environment.iter().copied());
    let output = command.output().expect("weir runs");
    let notes = text(&output.stderr);
    assert!(output.status.success(), "{notes}");
    Imported {
        toml: text(&output.stdout),
        notes,
    }
}

fn import(yaml: &str) -> Imported {
    import_with(folder("").path(), yaml, &[], &[])
}

fn refused(folder: &Path, yaml: &str, arguments: &[&str]) -> String {
    fs::write(folder.join("config.yaml"), yaml).expect("the folder can be written");
    let mut command = weir(folder);
    command
        .args(["import", "litellm", "config.yaml"])
        .args(arguments);
    let output = command.output().expect("weir runs");
    assert!(
        !output.status.success() && output.stdout.is_empty(),
        "{output:?}"
    );
    text(&output.stderr)
}

fn assert_parts(printed: &str, parts: &[&str]) {
    for part in parts {
        assert!(printed.contains(part), "{part}: {printed}");
    }
}

#[test]
fn deployments_of_a_group_become_upstreams_of_a_model() {
    let Imported { toml, notes } = import(include_str!("import_litellm/load_balancer.yaml"));
    // `gpt-3.5-turbo` is not in the built-in catalog.
    assert_parts(
        &toml,
        &[
            "default_catalog = false\n",
            "ignore_fields = [\"audio\", \"frequency_penalty\",",
            "[price_factors]\ntext = 1\nimage = 1\n",
            "[providers.openai]\nadapter = \"openai\"\nbase_url = \"https://api.openai.com/v1\"\n\
             credential = { env = \"IMPORTED_OPENAI_KEY_1\" }\n",
            "[providers.openai-2]\n",
            "[providers.openrouter]\nadapter = \"openai\"\nbase_url = \"https://openrouter.ai/api/v1\"\n\
             credential = { env = \"OPENROUTER_API_KEY\" }\noptions = { output-limit-field = \"max_tokens\" }\n",
            "# Add `context_window`, `max_output_tokens`, a price, and remove the `# ` from this section.\n\
             # [models.\"gpt-3.5-turbo\"]\n# context_window =\n",
            "#     { provider = \"openai-2\", weight = 1 },\n",
        ],
    );
    assert_parts(
        &notes,
        &[
            "  model_list[0].rpm: upstreams have no own rate limits",
            "  model_list[3]: the deployment \"mistralai/mistral-7b-instruct\" of \"mistral-7b-instruct\": weir has no adapter for \
             the provider \"mistralai\"\n",
            "  environment_variables.REDIS_HOST: never copied",
            "  IMPORTED_OPENAI_KEY_1: set it to the secret at model_list[0].litellm_params.api_key, which is not copied\n",
            "Imported models: 0, upstreams: 0, providers: 3. Models as comments: 1. Not carried over: 9. With a difference: 0.",
        ],
    );
    for secret in ["sk-uj6F", "sk-Imn", "localhost"] {
        assert!(
            !toml.contains(secret) && !notes.contains(secret),
            "{secret}: {toml}{notes}"
        );
    }
}

#[test]
fn prices_and_limits_come_from_the_file_the_catalog_or_a_price_file() {
    let catalog = import(include_str!("import_litellm/adaptive_router_example.yaml"));
    assert_parts(
        &catalog.toml,
        &[
            "[models.\"fast\"]\nends_on = \"2027-01-14\"\ncontext_window = 128000\nmax_output_tokens = 16384\ndefault_output_tokens = 8192\n\
             supports_tools = true\nsupports_vision = true\n",
            "image_family = \"gpt-4o-mini\"\n",
            "upstreams = [\n    { provider = \"openai\", model = \"gpt-4o-mini\"",
            "price = { input = 0.15, cache_read = 0.075, output = 0.6 }\n",
            // The file has another price of input than the catalog.
            "price = { input = 5, cache_read = 1.25, output = 10 }\n",
        ],
    );
    assert_parts(
        &catalog.notes,
        &[
            "model_list[0]: the deployment \"auto_router/adaptive_router\" of \"smart-cheap-router\": weir has no adapter",
            "model_list[1].model_info.adaptive_router_preferences: weir has no equivalent\n",
            "general_settings.master_key: never copied",
            "  OPENAI_API_KEY\n",
            "Imported models: 2, upstreams: 2, providers: 1. Models as comments: 0. Not carried over: 4. With a difference: 0.",
        ],
    );

    let folder = folder("");
    let prices = r#"{"deepseek/chat": {"litellm_provider": "deepseek", "mode": "chat", "max_input_tokens": 65536,
        "max_output_tokens": 8192, "input_cost_per_token": 2.8e-07, "output_cost_per_token": 4.2e-07,
        "supports_function_calling": true},
        "deepseek/embed": {"litellm_provider": "deepseek", "mode": "embedding", "input_cost_per_token": 1e-07}}"#;
    fs::write(folder.path().join("prices.json"), prices).expect("the folder can be written");
    let yaml = "model_list:\n\
                - {model_name: chat, litellm_params: {model: deepseek/chat, api_key: os.environ/DEEPSEEK}}\n\
                - {model_name: embed, litellm_params: {model: deepseek/embed}}\n\
                - model_name: own\n\
                \x20 litellm_params: {model: hosted_vllm/llama, api_base: 'http://10.0.0.5:8000/v1', input_cost_per_token: 1e-7,\n\
                \x20   output_cost_per_token: \"0.0000_004\", cache_read_input_token_cost: 0, input_cost_per_token_above_200k_tokens: 2e-7,\n\
                \x20   output_cost_per_token_above_200k_tokens: 8e-7, input_cost_per_second: 1}\n\
                \x20 model_info: {max_input_tokens: 400_000, max_output_tokens: 4096, supports_function_calling: Yes,\n\
                \x20   supports_vision: true, supports_pdf_input: true, mode: chat}\n";
    let priced = import_with(folder.path(), yaml, &["--prices", "prices.json"], &[]);
    assert_parts(
        &priced.toml,
        &[
            "[models.\"chat\"]\ncontext_window = 65536\nmax_output_tokens = 8192\ndefault_output_tokens = 8192\n\
             supports_tools = true\nupstreams = [\n    { provider = \"deepseek\" },\n]\nprice = { input = 0.28, output = 0.42 }\n",
            "[providers.hosted_vllm]\nadapter = \"openai\"\nbase_url = \"http://10.0.0.5:8000/v1\"\noptions =",
            "[models.\"own\"]\ncontext_window = 400000\nmax_output_tokens = 4096\ndefault_output_tokens = 4096\n\
             supports_tools = true\n# The model accepts images. Set both:\n",
            "price = { input = 0.1, cache_read = 0, output = 0.4, above = { input_tokens = 200000, price = { input = 0.2, \
             output = 0.8 } } }\n",
        ],
    );
    assert_parts(
        &priced.notes,
        &[
            "model_list[1]: the deployment \"deepseek/embed\" of \"embed\": the price file has no chat model of this name\n",
            "model_list[2].litellm_params.input_cost_per_second: weir has no such price\n",
            "model_list[2].model_info.supports_pdf_input: weir passes such requests on",
            "model_list[2]: images of \"own\": set `supports_vision` and `max_image_tokens`",
        ],
    );
}

#[test]
fn providers_of_clouds_are_carried_over_as_far_as_weir_has_adapters() {
    let azure = import(include_str!("import_litellm/azure_config.yaml"));
    assert_parts(
        &azure.toml,
        &[
            "[providers.azure]\nadapter = \"openai\"\nbase_url = \"https://openai-gpt-4-test-v-1.openai.azure.com/openai/v1\"\n\
             credential = { env = \"AZURE_API_KEY\" }\ncredential_slot = { header = \"api-key\" }\n\
             timeouts = { first_byte_ms = 5000, first_token_ms = 500, idle_ms = 5000 }\n",
        ],
    );
    assert_parts(
        &azure.notes,
        &[
            "model_list[0].litellm_params.api_version: weir uses Azure's v1 API",
            "model_list[0].litellm_params.max_retries: weir asks an upstream at most twice",
            "model_list[0].litellm_params.tpm: upstreams have no own rate limits",
        ],
    );

    let all = import_with(
        folder("").path(),
        include_str!("import_litellm/dev_config.yaml"),
        &[],
        &[("VERTEXAI_PROJECT", "project-1")],
    );
    assert_parts(
        &all.toml,
        &[
            "[providers.anthropic]\nadapter = \"anthropic\"\nbase_url = \"https://api.anthropic.com/v1\"\n\
             credential = { env = \"ANTHROPIC_API_KEY\" }\n",
            "[providers.vertex_ai-2]\nadapter = \"gemini\"\nbase_url = \"https://aiplatform.googleapis.com/v1/projects/project-1/\
             locations/global/publishers/google\"\ncredential = { google = { service_account = { env = \
             \"GEMINI_CLAUDE_CODE_VERTEX_CREDENTIALS\" } } }\ncredential_slot = \"bearer\"\n",
            "publishers/anthropic\"\ncredential = { google = {} }\ncredential_slot = \"bearer\"\noptions = { platform = \"vertex\" }\n",
            "[models.\"anthropic-sonnet-4-6\"]\n",
            "{ provider = \"anthropic\", model = \"claude-sonnet-4-6\"",
        ],
    );
    assert_parts(
        &all.notes,
        &[
            "vertex_project: the configuration has the present value of the environment variable VERTEXAI_PROJECT\n",
            "litellm_params.extra_body: a provider has no additional headers or fields\n",
        ],
    );
    let without = import(include_str!("import_litellm/dev_config.yaml"));
    assert_parts(
        &without.notes,
        &[
            "it needs the environment variable VERTEXAI_PROJECT, which is not set: set it, and import again\n",
        ],
    );

    let more = import(
        "credential_list:\n\
         - {credential_name: entra, credential_values: {tenant_id: t, client_id: c, client_secret: a-literal-client-secret}}\n\
         model_list:\n\
         - model_name: azure\n\
         \x20 litellm_params: {model: azure/responses/my-gpt, api_base: 'https://r.openai.azure.com/openai/deployments/x',\n\
         \x20   litellm_credential_name: entra}\n\
         \x20 model_info: {base_model: azure/gpt-5.2}\n\
         - {model_name: oss, litellm_params: {model: bedrock/converse/openai.gpt-oss-120b-1:0, aws_region_name: us-west-2,\n\
         \x20   aws_access_key_id: os.environ/KEY_ID, aws_secret_access_key: os.environ/ACCESS_KEY, input_cost_per_token: 1e-7,\n\
         \x20   output_cost_per_token: 6e-7, max_input_tokens: 128000, max_output_tokens: 32000}}\n\
         - {model_name: nova, litellm_params: {model: bedrock/amazon.nova-pro-v1:0, aws_region_name: eu-north-1,\n\
         \x20   input_cost_per_token: 1e-7, output_cost_per_token: 6e-7, max_input_tokens: 128000, max_output_tokens: 32000}}\n",
    );
    assert_parts(
        &more.toml,
        &[
            "base_url = \"https://r.openai.azure.com/openai/v1\"\ncredential = { entra = { tenant = \"t\", client_id = \"c\", \
             client_secret = { env = \"IMPORTED_AZURE_KEY_1\" } } }\n",
            "{ provider = \"azure\", model = \"my-gpt\", options = { api = \"responses\", efforts",
            "base_url = \"https://bedrock-runtime.us-west-2.amazonaws.com/openai/v1\"\ncredential = { aws = { region = \
             \"us-west-2\", access_key_id = { env = \"KEY_ID\" }, secret_access_key = { env = \"ACCESS_KEY\" } } }\n",
            "adapter = \"bedrock\"\nbase_url = \"https://bedrock-runtime.eu-north-1.amazonaws.com\"\ncredential = { aws = { region = \
             \"eu-north-1\" } }\n",
        ],
    );
    assert!(!(more.toml + &more.notes).contains("a-literal"), "a secret");
}

/// Deployments as in `docs/my-website/docs/proxy/configs.md` of LiteLLM: names of Azure's deployments, a server of one's own, limits
/// for each deployment and wildcards.
const GROUPS: &str = "model_list:\n\
    - model_name: gpt-4o\n\
    \x20 litellm_params: {model: azure/my-deployment-eu, api_base: 'https://eu.openai.azure.com/', api_key: os.environ/AZURE_EU, rpm: 6}\n\
    - model_name: gpt-4o\n\
    \x20 litellm_params: {model: azure/my-deployment-ca, api_base: 'https://ca.openai.azure.com/', api_key: os.environ/AZURE_CA, rpm: 6}\n\
    - {model_name: gpt-4o, litellm_params: {model: sagemaker/own-endpoint}}\n\
    - model_name: team\n\
    \x20 litellm_params: {model: azure/other, api_base: 'https://eu.openai.azure.com/', api_key: os.environ/AZURE_EU}\n\
    \x20 model_info: {base_model: azure/gpt-4o-mini}\n\
    - model_name: own\n\
    \x20 litellm_params: {model: openai/facebook/opt-125m, api_base: 'http://127.0.0.1:9/v1', api_key: none,\n\
    \x20   input_cost_per_token: 1e-7, output_cost_per_token: 4e-7}\n\
    - {model_name: own, litellm_params: {model: hosted_vllm/opt-125m, api_base: 'http://127.0.0.1:8/v1'}}\n\
    - {model_name: 'anthropic/*', litellm_params: {model: 'anthropic/*', api_key: os.environ/ANTHROPIC}}\n\
    - {model_name: 'groq/*', litellm_params: {model: 'groq/*', api_key: os.environ/GROQ}}\n";

#[test]
fn deployments_with_names_of_their_own_are_carried_over() {
    let Imported { toml, notes } = import(GROUPS);
    assert_parts(
        &toml,
        &[
            // The price and the limits of the built-in `gpt-4o`.
            "[models.\"gpt-4o\"]\n",
            "upstreams = [\n    { provider = \"azure\", model = \"my-deployment-eu\", weight = 6",
            "    { provider = \"azure-2\", model = \"my-deployment-ca\", weight = 6",
            "price = { input = 2.5, cache_read = 1.25, output = 10 }\n",
            "{ provider = \"azure\", model = \"other\"",
            "price = { input = 0.15, cache_read = 0.075, output = 0.6 }\n",
            "[models.\"own\"]\ncontext_window = 128000\nmax_output_tokens = 4096\ndefault_output_tokens = 4096\n",
            "model = \"facebook/opt-125m\", weight = 1 },\n    { provider = \"hosted_vllm\", model = \"opt-125m\", weight = 1 },\n]\n\
             price = { input = 0.1, output = 0.4 }\n",
            "[models.\"anthropic/claude-sonnet-4-6\"]\n",
        ],
    );
    assert_parts(
        &notes,
        &[
            "model_list[0]: nothing is known of \"azure/my-deployment-eu\": it has the price, the context window, the output limit of \
             \"gpt-4o\"",
            "model_list[0].litellm_params.rpm: upstreams have no own rate limits",
            "model_list[4]: neither the file nor the built-in catalog has the `context_window` of \"own\": it is 128000",
            "model_list[5]: nothing has a price of \"opt-125m\": as an upstream of \"own\", it has the dearest one of the others",
            "model_list[6]: weir has no wildcards: \"anthropic/*\" became its ",
            "model_list[7]: the deployment \"groq/*\" of \"groq/*\": weir has no wildcards, and knows no models of this one",
            "\n1 of 3 upstreams of gpt-4o is missing.\n",
            "\n1 of 1 upstreams of groq/* is missing.\n",
        ],
    );
    assert!(!toml.contains("# Add"), "{toml}");
    assert!(
        !notes.contains("upstreams of own") && !notes.contains("upstreams of team"),
        "{notes}"
    );
}

/// A model of its own name has precedence over a wildcard, as with LiteLLM.
#[test]
fn a_wildcard_leaves_models_with_a_name_of_their_own() {
    let Imported { toml, .. } = import(
        "model_list:\n\
         - {model_name: '*', litellm_params: {model: 'openai/*', api_key: os.environ/KEY}}\n\
         - {model_name: gpt-4o, litellm_params: {model: openai/gpt-4.1, api_key: os.environ/OTHER}}\n",
    );
    assert_eq!(toml.matches("[models.\"gpt-4o\"]").count(), 1, "{toml}");
    assert_parts(
        &toml,
        &[
            "[models.\"gpt-4o-mini\"]\n",
            "{ provider = \"openai\", model = \"gpt-4.1\"",
        ],
    );
}

/// A file with settings of all kinds.
const LISTED: &str = "model_list:\n\
                      - model_name: a\n\
                      \x20 litellm_params: &a {model: gpt-4.1, api_key: os.environ/KEY, temperature: 0.1, extra_headers: {x: sk-header}}\n\
                      - {model_name: a, litellm_params: {<<: *a, model: openai/gpt-4.1-mini, weight: 3, unknown_key: sk-value}}\n\
                      - {model_name: 'openai/*', litellm_params: {model: 'openai/*'}}\n\
                      router_settings:\n\
                      \x20 {routing_strategy: latency-based-routing, num_retries: 3, timeout: 700, stream_timeout: '20',\n\
                      \x20 fallbacks: [{a: [b]}], model_group_alias: {x: a, y: {model: a, hidden: true}, z: gone}}\n\
                      litellm_settings:\n\
                      \x20 {max_budget: 10, budget_duration: 30d, context_window_fallbacks: [{a: [b]}], callbacks: [otel], unheard_of: 1,\n\
                      \x20 default_team_settings: [{team_id: sk-team}], drop_params: false, cache: false}\n\
                      general_settings: {master_key: sk-master, database_url: 'postgres://u:sk-password@h/d', brand_new: true}\n\
                      guardrails: [{guardrail_name: g}]\n\
                      brand_new: sk-new\n";

#[test]
fn each_key_without_an_equivalent_is_listed_without_its_value() {
    let Imported { toml, notes } = import(LISTED);
    assert_parts(
        &toml,
        &[
            "[timeouts]\nfirst_byte_ms = 700000\nfirst_token_ms = 20000\nidle_ms = 700000\ntotal_ms = 700000\n",
            "[models.\"a\"]\naliases = [\"x\", \"y\"]\n",
            "route = \"latency\"\nupstreams = [\n    { provider = \"openai\", model = \"gpt-4.1\"",
        ],
    );
    assert!(
        !toml.contains("weight") && !toml.contains("ignore_fields"),
        "{toml}"
    );
    for at in [
        "model_list[0].litellm_params.temperature: weir sends no default parameters",
        "model_list[0].litellm_params.extra_headers: ",
        "model_list[1].litellm_params.unknown_key: weir has no equivalent",
        "model_list[1].litellm_params.extra_headers: ",
        "model_list[2]: weir has no wildcards: \"openai/*\" became its ",
        "router_settings.num_retries: ",
        "router_settings.fallbacks: with the order \"latency\"",
        "router_settings.model_group_alias.z: the configuration has no model \"gone\"",
        "litellm_settings.max_budget: budgets are stored with accounts",
        "litellm_settings.budget_duration: ",
        "litellm_settings.context_window_fallbacks: ",
        "litellm_settings.callbacks: ",
        "litellm_settings.unheard_of: weir has no equivalent",
        "litellm_settings.default_team_settings: ",
        "litellm_settings.cache: weir's own response cache is off",
        "general_settings.master_key: never copied",
        "general_settings.database_url: never copied",
        "general_settings.brand_new: weir has no equivalent",
        "guardrails: `[[filters]]` check requests",
        "brand_new: weir has no equivalent",
    ] {
        assert!(notes.contains(&format!("\n  {at}")), "{at}: {notes}");
    }
    assert!(
        !toml.contains("sk-") && !notes.contains("sk-"),
        "{toml}{notes}"
    );
}

#[test]
fn included_files_are_merged_as_litellm_does() {
    let folder = folder("");
    fs::create_dir(folder.path().join("more")).expect("a folder");
    fs::write(
        folder.path().join("more/models.yaml"),
        "include: [general.yaml, ../config.yaml]\n\
         model_list: [{model_name: b, litellm_params: {model: gpt-4.1, unheard_of: 1}}]\n",
    )
    .expect("the folder can be written");
    fs::write(
        folder.path().join("more/general.yaml"),
        "router_settings: {routing_strategy: cost-based-routing}\n",
    )
    .expect("the folder can be written");
    let main = "include: [more/models.yaml]\nrouter_settings: {routing_strategy: least-busy}\n\
                model_list: [{model_name: a, litellm_params: {model: gpt-4.1}}]\n";
    let Imported { toml, notes } = import_with(folder.path(), main, &[], &[]);
    assert_parts(
        &toml,
        &["[models.\"a\"]", "[models.\"b\"]", "route = \"price\"\n"],
    );
    assert_parts(
        &notes,
        &["  more/models.yaml: model_list[0].litellm_params.unheard_of: weir has no equivalent\n"],
    );
    let error = refused(folder.path(), "include: [gone.yaml]\n", &[]);
    assert_parts(&error, &["gone.yaml"]);
}

#[test]
fn files_that_litellm_rejects_and_bombs_are_refused() {
    let folder = folder("");
    let bomb = (1..40).fold("a0: &a0 [x, x]\n".to_owned(), |text, level| {
        format!("{text}a{level}: &a{level} [*a{0}, *a{0}]\n", level - 1)
    });
    for (yaml, part) in [
        (
            bomb,
            "the values, with aliases replaced, are larger than 8 MiB",
        ),
        ("x".repeat(9 << 20), "is larger than 8 MiB"),
        ("a: [\n".to_owned(), "is not valid YAML: line"),
        ("- a\n".to_owned(), "is no mapping"),
        (
            "model_list: []\nmodel_list: []\n".to_owned(),
            "is there twice",
        ),
    ] {
        let error = refused(folder.path(), &yaml, &[]);
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn an_output_file_is_replaced_only_by_force() {
    let folder = folder("");
    let yaml = "model_list: [{model_name: a, litellm_params: {model: gpt-4.1}}]\n";
    let path = folder.path().join("new.toml");
    let output = ["--output", "new.toml"];
    let printed = import_with(folder.path(), yaml, &output, &[]);
    assert_eq!(printed.toml, "");
    fs::write(&path, "# Mine").expect("the folder can be written");
    let error = refused(folder.path(), yaml, &output);
    assert!(
        error.contains("new.toml already exists; --force replaces it"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(&path).expect("the file"), "# Mine");
    import_with(
        folder.path(),
        yaml,
        &["--output", "new.toml", "--force"],
        &[],
    );
    assert!(
        fs::read_to_string(&path)
            .expect("the file")
            .starts_with("# Written by")
    );
    let help = weir(folder.path())
        .args(["import", "litellm", "--help"])
        .output();
    let help = text(&help.expect("weir runs").stdout);
    assert_parts(
        &help,
        &[
            "weir import litellm config.yaml --output weir.toml",
            "--prices",
        ],
    );
}

/// All files pass `weir check`, too, and with their credentials.
#[test]
fn the_configurations_of_all_examples_are_valid() {
    for yaml in [
        include_str!("import_litellm/adaptive_router_example.yaml"),
        include_str!("import_litellm/azure_config.yaml"),
        include_str!("import_litellm/dev_config.yaml"),
        include_str!("import_litellm/load_balancer.yaml"),
        include_str!("import_litellm/oai_misc_config.yaml"),
        include_str!("import_litellm/otel_test_config.yaml"),
        include_str!("import_litellm/proxy_config.yaml"),
        LISTED,
        GROUPS,
    ] {
        let folder = folder("");
        let environment = [
            ("FAKE_OPENAI_API_BASE", "http://127.0.0.1:9/v1"),
            ("RECORDER_COHERE_BASE_URL", "http://127.0.0.1:9/v1"),
            ("VERTEXAI_PROJECT", "project-1"),
        ];
        let Imported { toml, notes } = import_with(folder.path(), yaml, &[], &environment);
        fs::write(folder.path().join("weir.toml"), &toml).expect("the folder can be written");
        let mut check = weir(folder.path());
        check.arg("check");
        let variables = notes
            .split("Environment variables that the configuration reads:\n")
            .nth(1);
        for line in variables.unwrap_or_default().lines() {
            let Some(name) = line.strip_prefix("  ") else {
                break;
            };
            let name = name.split(':').next().expect("a name");
            // A service account's key is JSON, which this is not.
            if !name.ends_with("_CREDENTIALS") {
                check.env(name, "a-credential-0123456789");
            }
        }
        let output = check.output().expect("weir runs");
        assert!(output.status.success(), "{output:?}\n{toml}");
    }
}

/// A gateway on an imported configuration, whose keys are in its environment.
fn served(yaml: &str, environment: &[(&str, &str)]) -> Served {
    let folder: TempDir = folder_with_compiled_plugins();
    let output = ["--output", "weir.toml"];
    let Imported { notes, .. } = import_with(folder.path(), yaml, &output, environment);
    assert!(notes.contains("Models as comments: 0."), "{notes}");
    let mut command = weir(folder.path());
    command.envs(environment.iter().copied());
    Served::start_as(command, folder, &[])
}

const LIMITS: &str = "model_info: {max_input_tokens: 100000, max_output_tokens: 1000, input_cost_per_token: 0.000001, \
                      output_cost_per_token: 0.000002}";

#[tokio::test]
async fn a_gateway_serves_an_imported_configuration() {
    let (first, second, last) = (
        Upstream::start().await,
        Upstream::start().await,
        Upstream::start().await,
    );
    first.always(Reply::chat("first"));
    second.always(Reply::chat("second"));
    last.always(Reply::chat("last"));
    let yaml = format!(
        "model_list:\n\
         - {{model_name: main, litellm_params: {{model: openai/one, api_base: {}, api_key: os.environ/FIRST_KEY, weight: 3}}, {LIMITS}}}\n\
         - {{model_name: main, litellm_params: {{model: openai/two, api_base: os.environ/SECOND_BASE, api_key: \
         a-literal-key-0123456789, weight: 1}}, {LIMITS}}}\n\
         - {{model_name: backup, litellm_params: {{model: hosted_vllm/three, api_base: {}, api_key: none}}, {LIMITS}}}\n\
         router_settings: {{model_group_alias: {{gpt-4: main}}}}\n\
         litellm_settings: {{fallbacks: [{{main: [backup]}}]}}\n",
        first.base_url(),
        last.base_url(),
    );
    let environment = [
        ("FIRST_KEY", "the-first-key-0123456789"),
        ("SECOND_BASE", &*second.base_url()),
        ("IMPORTED_OPENAI_KEY_1", "a-literal-key-0123456789"),
    ];
    let gateway = served(&yaml, &environment);
    let client = gateway.client();
    let mut answers: BTreeMap<String, u32> = BTreeMap::new();
    for conversation in 0..60 {
        let mut body = chat("gpt-4", "x");
        body["prompt_cache_key"] = json!(format!("conversation {conversation}"));
        let answer = client.post("/v1/chat/completions", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = answer.json();
        assert_eq!(answer["model"], "main");
        let text = answer["choices"][0]["message"]["content"].to_string();
        *answers.entry(text).or_default() += 1;
    }
    let of = |text: &str| answers.get(text).copied().unwrap_or(0);
    assert!(
        of("\"first\"") > of("\"second\"") && of("\"second\"") > 0,
        "{answers:?}"
    );
    assert_eq!(last.count(), 0);
    let (one, two) = (&first.requests()[0], &second.requests()[0]);
    assert_eq!(
        (&one.json()["model"], &two.json()["model"]),
        (&json!("one"), &json!("two"))
    );
    assert_eq!(
        one.header("authorization"),
        Some("Bearer the-first-key-0123456789")
    );
    assert_eq!(
        two.header("authorization"),
        Some("Bearer a-literal-key-0123456789")
    );

    // Both deployments decline, and the fallback group serves.
    first.always(Reply::error(503, "busy"));
    second.always(Reply::error(503, "busy"));
    let answer = client
        .post("/v1/chat/completions", &chat("main", "x"))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "last");
    let asked = &last.requests()[0];
    assert_eq!(asked.json()["model"], "three");
    assert_eq!(asked.header("authorization"), None);
}
