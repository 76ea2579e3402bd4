//! Links between operations: from the operation that creates an object to those that read, change and delete it.

/// A response field of one operation that is a parameter of another.
pub(super) struct OperationLink {
    /// The operation with the response.
    pub(super) from: &'static str,
    /// The status of that response.
    pub(super) status: &'static str,
    /// The linked operation.
    pub(super) to: &'static str,
    /// The linked operation's parameter.
    pub(super) parameter: &'static str,
    /// The field's place in the response.
    pub(super) value: &'static str,
}

const fn link(
    (from, status): (&'static str, &'static str),
    to: &'static str,
    (parameter, value): (&'static str, &'static str),
) -> OperationLink {
    OperationLink {
        from,
        status,
        to,
        parameter,
        value,
    }
}

const KEY: (&str, &str) = ("key_id", "$response.body#/key_id");
const SWARM: (&str, &str) = ("execution_id", "$response.body#/execution_id");
const TASK: (&str, &str) = ("task_id", "$response.body#/task_id");
const SLOT: (&str, &str) = ("slot", "$response.body#/slot");
const VOUCHER: (&str, &str) = ("voucher_id", "$response.body#/voucher_id");
const USER: (&str, &str) = ("user_id", "$response.body#/user_id");

/// All links.
pub(super) const LINKS: [OperationLink; 35] = [
    link(("create_api_key", "201"), "set_key_budgets", KEY),
    link(("create_api_key", "201"), "revoke_api_key", KEY),
    link(
        ("list_api_keys", "200"),
        "revoke_api_key",
        ("key_id", "$response.body#/api_keys/0/key_id"),
    ),
    link(("create_swarm", "202"), "get_swarm", SWARM),
    link(("create_swarm", "202"), "stream_events", SWARM),
    link(("create_swarm", "202"), "cancel_swarm", SWARM),
    link(("create_swarm", "202"), "delete_swarm", SWARM),
    link(
        ("list_swarms", "200"),
        "get_swarm",
        ("execution_id", "$response.body#/swarms/0/execution_id"),
    ),
    link(
        ("list_swarms", "200"),
        "list_swarms",
        ("before", "$response.body#/next"),
    ),
    link(("create_task", "201"), "get_task", TASK),
    link(("create_task", "201"), "replace_task", TASK),
    link(("create_task", "201"), "delete_task", TASK),
    link(
        ("list_tasks", "200"),
        "get_task",
        ("task_id", "$response.body#/tasks/0/task_id"),
    ),
    link(
        ("show_history", "200"),
        "delete_session",
        ("id", "$response.body#/session_id"),
    ),
    link(
        ("list_requests", "200"),
        "get_request",
        ("request_id", "$response.body#/requests/0/id"),
    ),
    link(
        ("list_requests", "200"),
        "list_requests",
        ("before", "$response.body#/next"),
    ),
    link(
        ("list_models", "200"),
        "get_vendor_model",
        ("id", "$response.body#/models/0/id"),
    ),
    link(
        ("list_vendor_models", "200"),
        "get_vendor_model",
        ("id", "$response.body#/data/0/id"),
    ),
    link(("admin_create_key", "201"), "admin_revoke_key", KEY),
    link(("admin_create_key", "201"), "get_user", USER),
    link(("admin_create_key", "201"), "admin_list_keys", USER),
    link(("admin_create_key", "201"), "set_plan", USER),
    link(("admin_create_key", "201"), "top_up", USER),
    link(("admin_create_key", "201"), "adjust", USER),
    link(("admin_create_key", "201"), "set_budgets", USER),
    link(("admin_create_key", "201"), "disable_user", USER),
    link(("admin_create_key", "201"), "get_user_usage", USER),
    link(("admin_create_key", "201"), "list_user_requests", USER),
    link(("admin_create_key", "201"), "list_user_transactions", USER),
    link(("create_voucher", "201"), "revoke_voucher", VOUCHER),
    link(("disable_user", "200"), "enable_user", USER),
    link(
        ("list_plugins", "200"),
        "get_slot",
        ("slot", "$response.body#/slots/0/slot"),
    ),
    link(("begin_recording", "200"), "stop_recording", SLOT),
    link(("begin_recording", "200"), "list_exchanges", SLOT),
    link(("begin_recording", "200"), "forget_recording", SLOT),
];
