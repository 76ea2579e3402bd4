//! Reasons for which settings of LiteLLM are not carried over, with what to do instead.

/// Returns the reason for a key of a section: `litellm_params`, `model_info`, `router_settings`, `litellm_settings`,
/// `general_settings`, or the empty name of the file itself.
pub(super) fn why(section: &str, key: &str) -> String {
    let known = match (section, key) {
        (_, "cache" | "cache_params" | "cache_responses" | "cache_kwargs") => {
            "weir's own response cache is off unless `[response_cache]` enables it"
        }
        (_, "max_budget" | "budget_duration") => {
            "budgets are stored with accounts: `weir user set-budgets`, `weir key create --budget`"
        }
        (
            _,
            "max_retries"
            | "num_retries"
            | "retry_after"
            | "retry_policy"
            | "model_group_retry_policy",
        ) => "weir asks an upstream at most twice, and then the next one",
        (_, "allowed_fails" | "allowed_fails_policy" | "cooldown_time") => {
            "weir pauses an upstream after 5 failures in a row"
        }
        (_, "set_verbose" | "json_logs" | "debug_level") => {
            "the environment variable WEIR_LOG and `log_format` control the log"
        }
        (_, "tpm" | "rpm" | "itpm" | "otpm" | "tpd" | "rpd" | "max_parallel_requests") => {
            "upstreams have no own rate limits: `limits.requests_per_upstream` and `rate_limits` apply"
        }
        ("litellm_params", "extra_headers" | "headers" | "organization" | "extra_body") => {
            "a provider has no additional headers or fields"
        }
        (
            "litellm_params",
            "temperature"
            | "top_p"
            | "max_tokens"
            | "max_completion_tokens"
            | "stop"
            | "seed"
            | "frequency_penalty"
            | "presence_penalty"
            | "reasoning_effort"
            | "thinking"
            | "n",
        ) => "weir sends no default parameters: clients set them",
        ("litellm_params", "drop_params" | "additional_drop_params" | "allowed_openai_params") => {
            "weir drops fields for all models: `ignore_fields`, or the header x-weir-drop of a request"
        }
        ("litellm_params", "tags" | "tag_regex") | ("router_settings", "enable_tag_filtering") => {
            "requests choose providers by the header x-weir-provider, not by tags"
        }
        ("litellm_params", key) if key.contains("cost_per") || key.contains("_token_cost") => {
            "weir has no such price"
        }
        ("litellm_params" | "model_info", key) if key.starts_with("supports_") => {
            "weir passes such requests on, and the provider rejects those that the model cannot serve"
        }
        ("model_info", "id") => "weir names upstreams by provider and model",
        ("model_info", "access_groups") => {
            "keys list their models themselves: `weir key create --model`"
        }
        ("router_settings", "content_policy_fallbacks") | (_, "context_window_fallbacks") => {
            "weir falls back only if a provider is unavailable; requests that do not fit get 400"
        }
        ("router_settings", "redis_url" | "redis_host" | "redis_port" | "redis_password") => {
            "never copied: set `redis_url` to share limits between nodes"
        }
        (
            "litellm_settings",
            "callbacks" | "success_callback" | "failure_callback" | "service_callback",
        ) => "weir has metrics at /metrics, and traces by `[telemetry]`",
        ("litellm_settings", "default_team_settings" | "default_team_params") => {
            "teams are organisations, which weir stores: see organisations.md"
        }
        (
            "litellm_settings",
            "default_internal_user_params"
            | "max_internal_user_budget"
            | "internal_user_budget_duration",
        ) => {
            "the plan of a user sets limits and credits: `[rate_limits]`, `[plans]`, `weir user set-plan`"
        }
        ("litellm_settings", "default_key_generate_params" | "upperbound_key_generate_params") => {
            "keys get their limits when they are created: `weir key create`"
        }
        ("general_settings", "master_key") => {
            "never copied: administrators sign in with `weir console`, and `weir key create` makes keys of users"
        }
        ("general_settings", "database_url") => {
            "never copied, because weir needs a database of its own: set `database_url`; LiteLLM's keys and spend stay there"
        }
        (
            "general_settings",
            "alerting" | "alert_types" | "alerting_threshold" | "alert_to_webhook_url",
        ) => "alerts follow from /metrics; operate.md lists them",
        ("general_settings", "max_request_size_mb") => "set `limits.body_bytes`",
        ("general_settings", "max_response_size_mb") => "set `limits.answer_bytes`",
        ("general_settings", "global_max_parallel_requests") => "set `limits.concurrent_requests`",
        ("general_settings", "custom_auth" | "enable_jwt_auth" | "litellm_jwtauth") => {
            "`[identity]` accepts tokens of OpenID Connect issuers"
        }
        ("general_settings", "store_model_in_db") => {
            "models are in the configuration only: models that LiteLLM stores are not part of this file"
        }
        ("general_settings", "coordination_redis") => "never copied: set `redis_url`",
        ("", "guardrails" | "policies" | "policy_attachments" | "prompts") => {
            "`[[filters]]` check requests and responses: see plugins.md"
        }
        ("", "mcp_servers" | "mcp_tools") => {
            "add `[mcp.NAME]`, and list the tools that may be called"
        }
        (
            "",
            "search_tools"
            | "sandbox_tools"
            | "vector_store_registry"
            | "files_settings"
            | "finetune_settings",
        ) => "weir has no such endpoints",
        _ => "weir has no equivalent",
    };
    known.to_owned()
}
