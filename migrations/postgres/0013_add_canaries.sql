-- The canary of a slot: another component, which serves a share of the accounts.
ALTER TABLE slots ADD COLUMN canary_digest TEXT;
-- The number of the change that began it, which no other canary has.
ALTER TABLE slots ADD COLUMN canary_number BIGINT;
-- In parts of ten thousand.
ALTER TABLE slots ADD COLUMN canary_share BIGINT CHECK (canary_share BETWEEN 1 AND 9999);
ALTER TABLE slots ADD COLUMN canary_since BIGINT;
-- How long it must have done well to serve all, in milliseconds. Null where it is promoted by an operator alone.
ALTER TABLE slots ADD COLUMN canary_promote_after_ms BIGINT CHECK (canary_promote_after_ms > 0);

-- What a canary is compared by: sums over the requests of all nodes since it began, of it and of what serves the others. Those
-- of a slot's last canary are kept until its next one.
CREATE TABLE canary_samples (
    slot           TEXT   NOT NULL,
    canary_number  BIGINT NOT NULL,
    digest         TEXT   NOT NULL,
    -- Of accounts: each is summed by itself.
    account_group  BIGINT NOT NULL,
    -- traps, faults, errors, first_token, latency, tokens or credits.
    measure        TEXT   NOT NULL,
    -- Requests, the sum of their values, and of the squares. A value is 1 where something happened and 0 where it did not, or
    -- a thousand times the natural logarithm of one more than an amount.
    requests       BIGINT NOT NULL,
    total          BIGINT NOT NULL,
    squares        BIGINT NOT NULL,
    PRIMARY KEY (slot, canary_number, digest, account_group, measure)
);

ALTER TABLE plugin_events DROP CONSTRAINT plugin_events_kind_check;
ALTER TABLE plugin_events ADD CONSTRAINT plugin_events_kind_check
    CHECK (kind IN ('installed', 'activated', 'rolled_back', 'removed', 'quarantined', 'quarantine_withheld',
        'canary_started', 'canary_promoted', 'canary_ended'));
