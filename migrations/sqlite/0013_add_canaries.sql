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

-- What can happen to a slot, with its canaries.
CREATE TABLE plugin_events_with_canaries (
    number           BIGINT NOT NULL PRIMARY KEY,
    at               BIGINT NOT NULL,
    slot             TEXT   NOT NULL,
    kind             TEXT   NOT NULL
        CHECK (kind IN ('installed', 'activated', 'rolled_back', 'removed', 'quarantined', 'quarantine_withheld',
        'canary_started', 'canary_promoted', 'canary_ended')),
    -- What it was about, and what served before.
    digest           TEXT,
    previous_digest  TEXT,
    -- Who did it: user:ID, service:E-MAIL, or weir itself.
    actor            TEXT   NOT NULL,
    detail           TEXT
);

INSERT INTO plugin_events_with_canaries
SELECT number, at, slot, kind, digest, previous_digest, actor, detail
FROM plugin_events;

DROP TABLE plugin_events;

ALTER TABLE plugin_events_with_canaries RENAME TO plugin_events;

CREATE INDEX plugin_events_by_slot ON plugin_events (slot, number);
