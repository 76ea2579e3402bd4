//! Every error code, with its status and its meaning. This table is the source of the table in `docs/errors.md`.

use http::StatusCode;

/// Declares the codes: variant, status, code, meaning, advice.
macro_rules! codes {
    ($($variant:ident, $status:ident, $code:literal, $meaning:literal, $advice:literal;)*) => {
        /// The reason for which weir rejects a request or cannot serve it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $(#[doc = $meaning] $variant,)*
        }

        impl ErrorCode {
            /// All codes, sorted.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The stable code in responses, e.g. `UNKNOWN_MODEL`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            /// The HTTP status, unless a response [sets another one](crate::ApiError::with_status).
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status,)* }
            }

            /// The meaning, as a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }

            /// Advice for clients, as a sentence.
            pub const fn advice(self) -> &'static str {
                match self { $(Self::$variant => $advice,)* }
            }
        }
    };
}

codes! {
    AdapterFailed, BAD_GATEWAY, "ADAPTER_FAILED",
        "The adapter of the provider failed.",
        "Retry once; report it to the operator if it persists.";
    AdapterUnavailable, SERVICE_UNAVAILABLE, "ADAPTER_UNAVAILABLE",
        "No working adapter is active for the provider.",
        "Retry after `Retry-After`.";
    AlreadyMember, CONFLICT, "ALREADY_MEMBER",
        "The user is a member of the organisation already.",
        "Ask an administrator to change the role.";
    AlreadySubscribed, CONFLICT, "ALREADY_SUBSCRIBED",
        "The user already has a plan.",
        "Change or cancel the plan in the portal (`POST /billing/portal`).";
    AttestationInvalid, UNAUTHORIZED, "ATTESTATION_INVALID",
        "The attestation token is missing or invalid.",
        "Send a valid token in `X-Identity-AppCheck`.";
    BudgetExceeded, TOO_MANY_REQUESTS, "BUDGET_EXCEEDED",
        "A budget of the account, or of the key, project, member or model, has too few credits left.",
        "Wait until `resets_at`, or raise the budget.";
    CacheUnavailable, SERVICE_UNAVAILABLE, "CACHE_UNAVAILABLE",
        "The cache (Redis) does not respond.",
        "Retry after `Retry-After`.";
    CatalogLayerChanged, CONFLICT, "CATALOG_LAYER_CHANGED",
        "Another administrator has changed the catalog layer in the meantime.",
        "Read the active version, and apply the change to it.";
    CheckoutReplaced, CONFLICT, "CHECKOUT_REPLACED",
        "A newer request for another plan replaced this checkout.",
        "Use the newer page, or request a new one.";
    ClientDisconnected, BAD_REQUEST, "CLIENT_DISCONNECTED",
        "The client disconnected before the end of the response. Only records of requests have this code.",
        "Keep the connection open; the charge is for the delivered part.";
    ContentFiltered, BAD_REQUEST, "CONTENT_FILTERED",
        "A filter or the provider rejected the content.",
        "Change the content; `filter` or `upstream_code` has details.";
    ContextLengthExceeded, BAD_REQUEST, "CONTEXT_LENGTH_EXCEEDED",
        "Input plus output limit exceed the context window of the model.",
        "Shorten the messages or the output limit.";
    CredentialLimitReached, TOO_MANY_REQUESTS, "CREDENTIAL_LIMIT_REACHED",
        "The task already has 20 credentials.",
        "Delete a credential of the task.";
    DevelopmentMode, FORBIDDEN, "DEVELOPMENT_MODE",
        "A gateway in development mode received a request from another machine or through a proxy.",
        "Call from the same machine, or set `dev = false`.";
    FilterFailed, BAD_GATEWAY, "FILTER_FAILED",
        "A filter failed.",
        "Retry once; report it to the operator if it persists.";
    FilterUnavailable, SERVICE_UNAVAILABLE, "FILTER_UNAVAILABLE",
        "A required filter is not active.",
        "Retry after `Retry-After`.";
    Forbidden, FORBIDDEN, "FORBIDDEN",
        "The caller is not an administrator, or their role in the organisation does not allow the request.",
        "Use an administrator account.";
    FormNotAccepted, FORBIDDEN, "FORM_NOT_ACCEPTED",
        "A console form does not belong to the current session.",
        "Reload the page and submit again.";
    HeadTooLarge, REQUEST_HEADER_FIELDS_TOO_LARGE, "HEAD_TOO_LARGE",
        "The request has too many headers or too large a head.",
        "Send fewer or shorter headers.";
    IdempotencyAnswerNotKept, CONFLICT, "IDEMPOTENCY_ANSWER_NOT_KEPT",
        "The first request with this key was served, but its response is not stored.",
        "Do not retry; `charged_credits` may show the charge.";
    IdempotencyInProgress, CONFLICT, "IDEMPOTENCY_IN_PROGRESS",
        "The first request with this key is still running.",
        "Retry after `Retry-After` with the same key.";
    IdempotencyKeyReused, CONFLICT, "IDEMPOTENCY_KEY_REUSED",
        "The key was used for a different request.",
        "Use a new key for each request.";
    IdentityUnavailable, SERVICE_UNAVAILABLE, "IDENTITY_UNAVAILABLE",
        "The token issuer cannot be reached.",
        "Retry after `Retry-After`.";
    IdReused, CONFLICT, "ID_REUSED",
        "Another operation already used this `id`.",
        "Use a new id.";
    InsufficientCredits, PAYMENT_REQUIRED, "INSUFFICIENT_CREDITS",
        "The balance or the budget is too low for the swarm.",
        "Buy credits, raise `max_total_credits`, or use fewer agents.";
    IntegrationNotAllowed, FORBIDDEN, "INTEGRATION_NOT_ALLOWED",
        "The user or the plan may not use this integration.",
        "Remove the integration in `param`, or ask the operator.";
    Internal, INTERNAL_SERVER_ERROR, "INTERNAL",
        "weir failed unexpectedly.",
        "Retry; report the `request_id` to the operator.";
    InvalidModel, BAD_REQUEST, "INVALID_MODEL",
        "An agent names an unknown model.",
        "Use a model from `GET /models`.";
    InvalidPlan, BAD_REQUEST, "INVALID_PLAN",
        "The plan is not `guru` or `pro`.",
        "Send a valid plan.";
    InvalidRequest, BAD_REQUEST, "INVALID_REQUEST",
        "A field, header or parameter is invalid.",
        "Correct the field in `param`.";
    InvalidSignature, BAD_REQUEST, "INVALID_SIGNATURE",
        "The signature of a payment webhook is invalid or older than 300 seconds.",
        "Check `payments.webhook_secrets` and `payments.signature_header`.";
    InvalidTier, BAD_REQUEST, "INVALID_TIER",
        "The tier is not `small`, `medium` or `large`.",
        "Send a valid tier.";
    InvitationForAnother, FORBIDDEN, "INVITATION_FOR_ANOTHER",
        "The issuer has not verified the invited e-mail address for this user.",
        "Sign in as the invited person, or ask for an invitation to your address.";
    InvitationInvalid, NOT_FOUND, "INVITATION_INVALID",
        "The invitation is unknown, used, revoked or expired.",
        "Ask for a new invitation.";
    KeyEnded, FORBIDDEN, "KEY_ENDED",
        "The API key of a task or swarm expired or was revoked, its project was archived, or its user left.",
        "Replace the definition of the task with another key.";
    KeyLimitReached, TOO_MANY_REQUESTS, "KEY_LIMIT_REACHED",
        "The user has 10 active keys, or created 100 keys today.",
        "Revoke a key, or wait until tomorrow.";
    LastOwner, CONFLICT, "LAST_OWNER",
        "The organisation would have no enabled owner.",
        "Transfer the ownership first.";
    LedgerBusy, SERVICE_UNAVAILABLE, "LEDGER_BUSY",
        "Other nodes hold the needed credits in reserve.",
        "Retry after `Retry-After`.";
    LedgerUnavailable, SERVICE_UNAVAILABLE, "LEDGER_UNAVAILABLE",
        "The credits could not be reserved.",
        "Retry after `Retry-After`.";
    LockedOut, TOO_MANY_REQUESTS, "LOCKED_OUT",
        "Too many failed credentials came from this address.",
        "Wait for `Retry-After`.";
    MethodNotAllowed, METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED",
        "The path does not support the method.",
        "Use a method from the `Allow` header.";
    MissingScope, FORBIDDEN, "MISSING_SCOPE",
        "The service token or the API key lacks the required scope.",
        "Use a token or a key with the scope in the message.";
    ModelNotAllowed, FORBIDDEN, "MODEL_NOT_ALLOWED",
        "The key may not use this model.",
        "Use a model from `GET /models`.";
    ModelNotSupported, BAD_REQUEST, "MODEL_NOT_SUPPORTED",
        "The model does not serve this kind of request.",
        "Use another model.";
    NothingToCompareWith, CONFLICT, "NOTHING_TO_COMPARE_WITH",
        "The slot has no active component to compare a canary with.",
        "Activate the component without `share`.";
    NothingToRollBackTo, CONFLICT, "NOTHING_TO_ROLL_BACK_TO",
        "The slot has no usable earlier component.",
        "Activate a component by its digest.";
    NotChanged, CONFLICT, "NOT_CHANGED",
        "The remote tool differs from the approved digest.",
        "Read `GET /admin/mcp/tools` and send its `changed_digest`.";
    NotFound, NOT_FOUND, "NOT_FOUND",
        "The path or the resource does not exist.",
        "Check the path and the id.";
    NotPossible, CONFLICT, "NOT_POSSIBLE",
        "The state of the account, swarm or event does not allow the operation.",
        "Read the message; do not retry unchanged.";
    NotReady, SERVICE_UNAVAILABLE, "NOT_READY",
        "The gateway is starting or cannot serve.",
        "Retry later; `/health/ready` gives the reason.";
    NoPaymentCustomer, NOT_FOUND, "NO_PAYMENT_CUSTOMER",
        "The user has not bought anything yet.",
        "Buy a plan or credits first.";
    NoPermittedProvider, FORBIDDEN, "NO_PERMITTED_PROVIDER",
        "No provider of the model satisfies the limits on regions and retention in `limits`.",
        "Use another model, or change the limits at their source.";
    NoWebhooks, NOT_FOUND, "NO_WEBHOOKS",
        "The gateway has no `webhook_key`.",
        "Ask the operator to set it.";
    OrganisationInUse, CONFLICT, "ORGANISATION_IN_USE",
        "The organisation has a paid plan, bought credits or requests in progress.",
        "Cancel the plan, or set `forfeit_credits=true`.";
    OrganisationLimitReached, TOO_MANY_REQUESTS, "ORGANISATION_LIMIT_REACHED",
        "The user has or created too many organisations, or the organisation has too many members, projects or invitations.",
        "Remove some, or wait until tomorrow.";
    OriginNotAllowed, FORBIDDEN, "ORIGIN_NOT_ALLOWED",
        "The `Origin` of the web page is not allowed.",
        "Add the origin to `cors_origins`.";
    OutputLimitExceeded, BAD_REQUEST, "OUTPUT_LIMIT_EXCEEDED",
        "The output limit exceeds the maximum of the model.",
        "Lower the limit.";
    Overloaded, SERVICE_UNAVAILABLE, "OVERLOADED",
        "The gateway has no capacity left.",
        "Retry after `Retry-After`.";
    PayloadTooLarge, PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE",
        "The body is too large, or too large for an adapter or a filter.",
        "Send a smaller body.";
    PaymentsUnavailable, SERVICE_UNAVAILABLE, "PAYMENTS_UNAVAILABLE",
        "The payment processor is unavailable, or none is configured.",
        "Retry, unless `x-should-retry` is `false`.";
    PlanLimitExceeded, BAD_REQUEST, "PLAN_LIMIT_EXCEEDED",
        "The swarm has more agents or iterations than the plan allows.",
        "Lower the value in `param`, or upgrade.";
    PlanNotEligible, FORBIDDEN, "PLAN_NOT_ELIGIBLE",
        "The plan does not include swarms and tools.",
        "Upgrade to `guru` or `pro`.";
    PluginActive, CONFLICT, "PLUGIN_ACTIVE",
        "The component already serves all accounts of the slot.",
        "Choose another component for a canary.";
    PluginBelowLeastVersion, CONFLICT, "PLUGIN_BELOW_LEAST_VERSION",
        "The version is below `least_version` of the slot.",
        "Install a newer version, or lower `least_version`.";
    PluginChanged, CONFLICT, "PLUGIN_CHANGED",
        "The slot no longer serves the component in `from`.",
        "Read the slot again.";
    PluginDoesNotFit, CONFLICT, "PLUGIN_DOES_NOT_FIT",
        "The configuration needs a capability that the component lacks.",
        "Change the configuration or the component.";
    PluginDowngrade, CONFLICT, "PLUGIN_DOWNGRADE",
        "The version is lower than one that the publisher signed for the slot.",
        "Send `allow_downgrade` to accept it.";
    PluginInUse, CONFLICT, "PLUGIN_IN_USE",
        "The component is active, a canary, or bundled.",
        "Activate another component first, or end the canary.";
    PluginNotChecked, SERVICE_UNAVAILABLE, "PLUGIN_NOT_CHECKED",
        "The gateway cannot check components now.",
        "Retry after `Retry-After`; read the log.";
    PluginNotEverywhere, CONFLICT, "PLUGIN_NOT_EVERYWHERE",
        "At least one node cannot load the component.",
        "Fix the node in the message.";
    PluginOtherPublisher, CONFLICT, "PLUGIN_OTHER_PUBLISHER",
        "The publisher differs from the publisher of the slot.",
        "Send `change_publisher` to accept it.";
    PluginPublisherNotAllowed, FORBIDDEN, "PLUGIN_PUBLISHER_NOT_ALLOWED",
        "The publisher may not sign for this slot.",
        "Add the slot to the publisher in the configuration.";
    PluginRefused, UNPROCESSABLE_ENTITY, "PLUGIN_REFUSED",
        "The component failed the load step in `step`.",
        "Fix the component; `weir plugin check` shows details.";
    PluginSignatureInvalid, FORBIDDEN, "PLUGIN_SIGNATURE_INVALID",
        "The signature does not match the component.",
        "Sign the component again.";
    PluginSignedForAnotherSlot, FORBIDDEN, "PLUGIN_SIGNED_FOR_ANOTHER_SLOT",
        "The signature names another slot.",
        "Sign the component for this slot.";
    PluginSignerUnknown, FORBIDDEN, "PLUGIN_SIGNER_UNKNOWN",
        "No configured publisher has the signing key.",
        "Add the publisher to the configuration.";
    PluginUnsigned, FORBIDDEN, "PLUGIN_UNSIGNED",
        "The component has no signature.",
        "Sign the component.";
    PreviousResponseNotFound, BAD_REQUEST, "PREVIOUS_RESPONSE_NOT_FOUND",
        "The response to continue does not exist or has expired.",
        "Send the whole conversation.";
    QuotaExceeded, TOO_MANY_REQUESTS, "QUOTA_EXCEEDED",
        "The balance is too low for the maximum price of the request.",
        "Buy credits, or lower the output limit.";
    RateLimited, TOO_MANY_REQUESTS, "RATE_LIMITED",
        "The user or the address sent too many requests.",
        "Retry after `Retry-After`.";
    Recording, CONFLICT, "RECORDING",
        "The slot is already being recorded.",
        "Stop the recording first.";
    RequestTimeout, REQUEST_TIMEOUT, "REQUEST_TIMEOUT",
        "The head or the body arrived too slowly.",
        "Retry.";
    SettlementDelayed, SERVICE_UNAVAILABLE, "SETTLEMENT_DELAYED",
        "The response is complete, but its charge is not stored yet.",
        "Do not retry; the charge follows.";
    ShuttingDown, SERVICE_UNAVAILABLE, "SHUTTING_DOWN",
        "The gateway is stopping.",
        "Retry; another node serves the request.";
    StoreUnavailable, SERVICE_UNAVAILABLE, "STORE_UNAVAILABLE",
        "The database does not respond.",
        "Retry after `Retry-After`.";
    SwarmDataLimitReached, TOO_MANY_REQUESTS, "SWARM_DATA_LIMIT_REACHED",
        "Stored swarms of the user would exceed 1 GiB.",
        "Delete finished swarms.";
    SwarmFenced, CONFLICT, "SWARM_FENCED",
        "Another executor owns the swarm, or the swarm is over (internal).",
        "None.";
    TaskLimitReached, TOO_MANY_REQUESTS, "TASK_LIMIT_REACHED",
        "The user already has 100 tasks.",
        "Delete a task.";
    TaskStartedTooSoon, TOO_MANY_REQUESTS, "TASK_STARTED_TOO_SOON",
        "The task already started in this minute.",
        "Retry after `Retry-After`.";
    TooManyAtOnce, TOO_MANY_REQUESTS, "TOO_MANY_AT_ONCE",
        "The account has too many concurrent requests, bytes, tool calls or exports.",
        "Retry after `Retry-After` with less concurrency.";
    TooManyBudgets, CONFLICT, "TOO_MANY_BUDGETS",
        "More than 100 keys of the user would have budgets.",
        "Revoke keys with budgets.";
    TooManyConnections, TOO_MANY_REQUESTS, "TOO_MANY_CONNECTIONS",
        "The address has too many connections.",
        "Retry after `Retry-After` with fewer connections.";
    TooManyGuesses, TOO_MANY_REQUESTS, "TOO_MANY_GUESSES",
        "The user sent 10 unknown voucher codes within an hour.",
        "Wait for `Retry-After`.";
    TooManySwarms, TOO_MANY_REQUESTS, "TOO_MANY_SWARMS",
        "100 swarms of the user are queued or running.",
        "Wait for a swarm to end.";
    Unauthenticated, UNAUTHORIZED, "UNAUTHENTICATED",
        "Credentials are missing or invalid.",
        "Send a valid key or token.";
    UnknownModel, BAD_REQUEST, "UNKNOWN_MODEL",
        "The model does not exist.",
        "Use a model from `GET /models`.";
    UnknownPlugin, NOT_FOUND, "UNKNOWN_PLUGIN",
        "The slot has no component with this digest.",
        "Install the component, or correct the digest.";
    UnknownRequest, NOT_FOUND, "UNKNOWN_REQUEST",
        "No finished request has this id, or it is archived.",
        "Check the id.";
    UnknownSlot, NOT_FOUND, "UNKNOWN_SLOT",
        "The slot does not exist.",
        "Use a slot from `GET /admin/plugins`.";
    UnknownSwarm, NOT_FOUND, "UNKNOWN_SWARM",
        "The swarm of an internal call does not exist.",
        "Check the `execution_id`.";
    UnknownTask, NOT_FOUND, "UNKNOWN_TASK",
        "The task of a queue message does not exist.",
        "Drop the message.";
    UnknownUser, NOT_FOUND, "UNKNOWN_USER",
        "The user does not exist.",
        "Check the id; a first request or key creates a user.";
    UnknownVoucher, NOT_FOUND, "UNKNOWN_VOUCHER",
        "No voucher has this code.",
        "Check the code for typing errors.";
    UnsupportedMediaType, UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE",
        "The content type or content encoding is not supported.",
        "Send the type in the message, without an encoding.";
    UnsupportedParameter, BAD_REQUEST, "UNSUPPORTED_PARAMETER",
        "The provider or the model does not support a field.",
        "Remove the field in `param`, or use another provider.";
    UpstreamBusy, SERVICE_UNAVAILABLE, "UPSTREAM_BUSY",
        "Too many requests are running at the provider.",
        "Retry after `Retry-After`.";
    UpstreamError, BAD_GATEWAY, "UPSTREAM_ERROR",
        "The provider failed, broke off, or sent an invalid response.",
        "Retry.";
    UpstreamRejected, BAD_REQUEST, "UPSTREAM_REJECTED",
        "The provider rejected the request.",
        "Correct the request; the message quotes the provider.";
    UpstreamTimeout, GATEWAY_TIMEOUT, "UPSTREAM_TIMEOUT",
        "The provider took too long.",
        "Retry, or send a smaller request.";
    UpstreamUnavailable, SERVICE_UNAVAILABLE, "UPSTREAM_UNAVAILABLE",
        "The provider is unreachable or disabled, limits requests, or failed repeatedly.",
        "Retry after `Retry-After`.";
    UserDisabled, FORBIDDEN, "USER_DISABLED",
        "The operator disabled the user.",
        "Contact the operator.";
    VisionNotSupported, BAD_REQUEST, "VISION_NOT_SUPPORTED",
        "The model does not accept images.",
        "Use a model with vision.";
    VoucherAlreadyRedeemed, CONFLICT, "VOUCHER_ALREADY_REDEEMED",
        "This person or this account already redeemed the voucher.",
        "None; the credits are in the balance.";
    VoucherExpired, CONFLICT, "VOUCHER_EXPIRED",
        "The voucher expired.",
        "Ask for a new voucher.";
    VoucherRevoked, CONFLICT, "VOUCHER_REVOKED",
        "The operator revoked the voucher.",
        "Ask for a new voucher.";
    VoucherUsedUp, CONFLICT, "VOUCHER_USED_UP",
        "All uses of the voucher are redeemed.",
        "Ask for a new voucher.";
}
