-- Indexes for every list and sweep that read a whole table. The partial ones have no more rows than there is to do.

-- Open holds of a run, and of an account; expired holds, which are deleted after a day.
CREATE INDEX holds_open ON holds (boot_id, opened_at) WHERE expired_at IS NULL;
CREATE INDEX holds_open_by_account ON holds (account_id) WHERE expired_at IS NULL;
CREATE INDEX holds_expired ON holds (expired_at) WHERE expired_at IS NOT NULL;

-- Paid plans that may be over. Periods of the free plan begin with an account's next operation.
CREATE INDEX accounts_paid_by_period_end ON accounts (period_end) WHERE plan <> 'free';

-- When an operator last asked for a retry: events are retried for a limited time.
ALTER TABLE payment_events ADD COLUMN retried_at BIGINT;

-- New events go first.
CREATE INDEX payment_events_new ON payment_events (next_attempt_at, id)
    WHERE attempts = 0 AND next_attempt_at IS NOT NULL;
CREATE INDEX payment_events_by_state ON payment_events (state, received_at, id);

CREATE INDEX users_by_subject_alone ON users (subject) WHERE subject IS NOT NULL;
CREATE INDEX users_by_plan ON users (plan, id);
CREATE INDEX users_administrators ON users (id) WHERE admin_since IS NOT NULL;
CREATE INDEX users_disabled ON users (id) WHERE disabled_at IS NOT NULL;

CREATE INDEX api_keys_in_order ON api_keys (user_id, created_at, id);
CREATE INDEX api_keys_not_revoked ON api_keys (user_id, created_at, id) WHERE disabled_at IS NULL;

CREATE INDEX audit_events_in_order ON audit_events (at, number);
CREATE INDEX audit_events_by_kind ON audit_events (kind, at, number);
CREATE INDEX audit_events_by_user ON audit_events (user_id, at, number) WHERE user_id IS NOT NULL;
CREATE INDEX audit_events_by_actor ON audit_events (actor, at, number) WHERE actor IS NOT NULL;

CREATE INDEX plugin_events_by_time ON plugin_events (at);
