//! The kinds of security events, and the columns of their rows.

/// A security event, as its database row has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AuditEvent {
    /// A request's authentication failed.
    AuthenticationFailed {
        /// `api_key`, `web`, `service`, `link`, `oidc` or `scim`.
        method: &'static str,
        /// The reason, from a fixed vocabulary.
        reason: &'static str,
    },
    /// weir locked out a client address after too many failures.
    LockedOut,
    /// An operator ended the lockout of an address.
    LockoutCleared,
    /// A request exceeded a rate limit.
    RateLimited {
        /// The limited user; unknown for a limited address.
        user_id: Option<String>,
        /// `address`, `caller` or `voucher`.
        scope: &'static str,
    },
    /// A key was made.
    KeyCreated {
        /// The key's owner.
        user_id: String,
        key_id: String,
    },
    /// A key was revoked.
    KeyRevoked {
        /// The key's owner.
        user_id: String,
        key_id: String,
    },
    /// A user changed a limit of a key.
    KeyLimitSet {
        /// The key's owner.
        user_id: String,
        key_id: String,
        /// `budgets`, `rates`, `filter_options` or `data_limits`.
        limit: &'static str,
    },
    /// A user decided whether weir stores the content of a key's requests.
    KeyContentLogSet {
        /// The key's owner.
        user_id: String,
        key_id: String,
        /// `on` or `off`.
        choice: &'static str,
    },
    /// Another person than its user has seen the prompt and the response of a request.
    ContentViewed {
        /// The request's user.
        user_id: String,
        request_id: String,
    },
    /// A user was created: by their first token or sign-in, by their first key, or by the issuer's directory.
    UserCreated {
        /// The user's id.
        user_id: String,
    },
    /// An operator, or the issuer's directory, disabled a user.
    UserDisabled {
        /// The user's id.
        user_id: String,
    },
    /// An operator, or the issuer's directory, enabled a disabled user.
    UserEnabled {
        /// The user's id.
        user_id: String,
    },
    /// A user, or an operator, erased the user.
    UserErased {
        /// The user's id.
        user_id: String,
    },
    /// An operator, or a group of the issuer, made a user an administrator.
    AdminGranted {
        /// The user's id.
        user_id: String,
    },
    /// An operator revoked a user's administrator role, or the user lost the group that granted it.
    AdminRevoked {
        /// The user's id.
        user_id: String,
    },
    /// A person signed in to the console.
    ConsoleSignedIn {
        /// The user's id.
        user_id: String,
        /// `web`, `development`, `link` or `oidc`.
        method: &'static str,
    },
    /// An operator created a one-time link to the console.
    ConsoleLinkCreated,
    /// An administrator changed the catalog.
    CatalogChanged {
        /// The layer's version, and its summary.
        reason: String,
    },
    /// The gateway took up its changed configuration.
    ConfigurationReloaded {
        /// The models that were added, removed and changed.
        reason: String,
    },
    /// A component failed to load into a slot.
    PluginRefused {
        /// The slot and the load step that it failed.
        reason: String,
    },
    /// An operator set the policy of a slot, or released or rejected a component in quarantine.
    PluginPolicySet {
        /// The slot and its policy.
        reason: String,
    },
    /// An operator put a user on a plan.
    PlanSet {
        /// The user's id.
        user_id: String,
        /// The plan's name.
        plan: &'static str,
    },
    /// An operator set the options of an account for filters.
    FilterOptionsSet {
        /// The user's id.
        user_id: String,
    },
    /// An operator gave a user credits.
    ToppedUp {
        /// The user's id.
        user_id: String,
        /// The number of credits, and the gift's id.
        credits: String,
    },
    /// An operator set a user's budgets.
    BudgetsSet {
        /// The user's id.
        user_id: String,
        /// The budgets, with their windows.
        budgets: String,
    },
    /// An operator corrected a user's credits.
    Adjusted {
        /// The user's id.
        user_id: String,
        /// The number of credits, the pool and the reason.
        reason: String,
    },
    /// An operator has made a voucher.
    VoucherCreated {
        /// The voucher's id, credits, uses and expiry.
        reason: String,
    },
    /// An operator has revoked a voucher.
    VoucherRevoked { voucher_id: String },
    /// A user has redeemed a voucher.
    VoucherRedeemed {
        /// The user's id.
        user_id: String,
        voucher_id: String,
    },
    /// An operator retried a webhook of the payment processor.
    PaymentEventRetried { event_id: String },
    /// An operator has cancelled a user's swarm.
    SwarmCancelled {
        /// The swarm's user.
        user_id: String,
        /// The swarm's id.
        execution_id: String,
    },
    /// A member changed an organisation.
    OrganisationChanged {
        /// `organisation.created`, `member.removed` and so on.
        kind: &'static str,
        organisation_id: String,
        /// The member, the project or another subject of the change.
        subject: String,
    },
    /// An administrator started or stopped a recording of a slot, or fetched or deleted it.
    Recorded {
        /// `recording.started` and so on.
        kind: &'static str,
        /// The slot.
        reason: String,
    },
    /// A remote tool changed at its server, or an administrator approved the change.
    RemoteTool {
        /// `mcp_tool.changed` or `mcp_tool.approved`.
        kind: &'static str,
        /// The server and the tool.
        reason: String,
    },
}

/// The kinds of events that change nothing: attempts, sign-ins and views.
pub(super) const WITHOUT_CHANGE: [&str; 7] = [
    "address.locked_out",
    "authentication.failed",
    "console.link_created",
    "console.signed_in",
    "plugin.refused",
    "rate_limit.hit",
    "request.content_viewed",
];

#[derive(Default)]
pub(super) struct EventColumns<'a> {
    pub(super) kind: &'static str,
    pub(super) method: Option<&'static str>,
    pub(super) reason: Option<&'a str>,
    pub(super) user_id: Option<&'a str>,
    pub(super) key_id: Option<&'a str>,
}

impl AuditEvent {
    /// Returns whether strangers can cause the event at will.
    pub(super) fn is_repeatable(&self) -> bool {
        matches!(
            self,
            Self::AuthenticationFailed { .. }
                | Self::LockedOut
                | Self::RateLimited { .. }
                | Self::PluginRefused { .. }
        )
    }

    /// Returns the event as columns of its row.
    pub(super) fn columns(&self) -> EventColumns<'_> {
        let of = |kind, user_id| EventColumns {
            kind,
            user_id,
            ..EventColumns::default()
        };
        match self {
            Self::AuthenticationFailed { method, reason } => EventColumns {
                method: Some(method),
                reason: Some(reason),
                ..of("authentication.failed", None)
            },
            Self::LockedOut => of("address.locked_out", None),
            Self::LockoutCleared => of("address.lockout_cleared", None),
            Self::RateLimited { user_id, scope } => EventColumns {
                reason: Some(scope),
                ..of("rate_limit.hit", user_id.as_deref())
            },
            Self::KeyCreated { user_id, key_id } => EventColumns {
                key_id: Some(key_id),
                ..of("api_key.created", Some(user_id))
            },
            Self::KeyRevoked { user_id, key_id } => EventColumns {
                key_id: Some(key_id),
                ..of("api_key.revoked", Some(user_id))
            },
            Self::KeyLimitSet {
                user_id,
                key_id,
                limit,
            } => EventColumns {
                key_id: Some(key_id),
                reason: Some(limit),
                ..of("api_key.limit_set", Some(user_id))
            },
            Self::KeyContentLogSet {
                user_id,
                key_id,
                choice,
            } => EventColumns {
                key_id: Some(key_id),
                reason: Some(choice),
                ..of("api_key.content_log_set", Some(user_id))
            },
            Self::ContentViewed {
                user_id,
                request_id,
            } => EventColumns {
                reason: Some(request_id),
                ..of("request.content_viewed", Some(user_id))
            },
            Self::UserCreated { user_id } => of("user.created", Some(user_id)),
            Self::UserDisabled { user_id } => of("user.disabled", Some(user_id)),
            Self::UserEnabled { user_id } => of("user.enabled", Some(user_id)),
            Self::UserErased { user_id } => of("user.erased", Some(user_id)),
            Self::AdminGranted { user_id } => of("user.admin_granted", Some(user_id)),
            Self::AdminRevoked { user_id } => of("user.admin_revoked", Some(user_id)),
            Self::ConsoleSignedIn { user_id, method } => EventColumns {
                method: Some(method),
                ..of("console.signed_in", Some(user_id))
            },
            Self::ConsoleLinkCreated => of("console.link_created", None),
            Self::PluginPolicySet { reason } => EventColumns {
                reason: Some(reason),
                ..of("plugin.policy_set", None)
            },
            Self::CatalogChanged { reason } => EventColumns {
                reason: Some(reason),
                ..of("catalog.changed", None)
            },
            Self::ConfigurationReloaded { reason } => EventColumns {
                reason: Some(reason),
                ..of("configuration.reloaded", None)
            },
            Self::PluginRefused { reason } => EventColumns {
                reason: Some(reason),
                ..of("plugin.refused", None)
            },
            Self::PlanSet { user_id, plan } => EventColumns {
                reason: Some(plan),
                ..of("user.plan_set", Some(user_id))
            },
            Self::FilterOptionsSet { user_id } => of("user.filter_options_set", Some(user_id)),
            Self::ToppedUp { user_id, credits } => EventColumns {
                reason: Some(credits),
                ..of("user.topped_up", Some(user_id))
            },
            Self::BudgetsSet { user_id, budgets } => EventColumns {
                reason: Some(budgets),
                ..of("user.budgets_set", Some(user_id))
            },
            Self::Adjusted { user_id, reason } => EventColumns {
                reason: Some(reason),
                ..of("user.adjusted", Some(user_id))
            },
            Self::VoucherCreated { reason } => EventColumns {
                reason: Some(reason),
                ..of("voucher.created", None)
            },
            Self::VoucherRevoked { voucher_id } => EventColumns {
                reason: Some(voucher_id),
                ..of("voucher.revoked", None)
            },
            Self::VoucherRedeemed {
                user_id,
                voucher_id,
            } => EventColumns {
                reason: Some(voucher_id),
                ..of("voucher.redeemed", Some(user_id))
            },
            Self::PaymentEventRetried { event_id } => EventColumns {
                reason: Some(event_id),
                ..of("payment_event.retried", None)
            },
            Self::SwarmCancelled {
                user_id,
                execution_id,
            } => EventColumns {
                reason: Some(execution_id),
                ..of("swarm.cancelled", Some(user_id))
            },
            Self::OrganisationChanged {
                kind,
                organisation_id,
                subject,
            } => EventColumns {
                reason: Some(&**subject).filter(|subject| !subject.is_empty()),
                ..of(kind, Some(organisation_id))
            },
            Self::Recorded { kind, reason } | Self::RemoteTool { kind, reason } => EventColumns {
                reason: Some(reason),
                ..of(kind, None)
            },
        }
    }
}
