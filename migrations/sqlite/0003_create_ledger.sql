-- SQLite makes a table of each list of more than two with every row that it checks: so the checks of rows that each
-- request writes have none.

CREATE TABLE accounts (
    id                       TEXT   NOT NULL PRIMARY KEY REFERENCES users (id),
    created_at               BIGINT NOT NULL,
    plan                     TEXT   NOT NULL CHECK (plan IN ('free', 'guru', 'pro')),
    period_start             BIGINT NOT NULL,
    period_end               BIGINT NOT NULL,
    -- How many periods have begun.
    period_number            BIGINT NOT NULL CHECK (period_number >= 0),
    -- Micro-credits, those included that are held.
    plan_credits             BIGINT NOT NULL,
    top_up_credits           BIGINT NOT NULL,
    -- What the account's open holds reserve.
    plan_held                BIGINT NOT NULL,
    top_up_held              BIGINT NOT NULL,
    -- How many entries there are.
    entries                  BIGINT NOT NULL CHECK (entries >= 0),
    payment_customer_id      TEXT   UNIQUE,
    payment_subscription_id  TEXT   UNIQUE,
    CHECK (period_start <= period_end),
    CHECK (plan_held BETWEEN 0 AND plan_credits),
    CHECK (top_up_held BETWEEN 0 AND top_up_credits)
) WITHOUT ROWID;

CREATE INDEX accounts_by_period_end ON accounts (period_end);

-- Those that are open, and those that expired and of which their node may have more to say. A hold that was settled or
-- released is in the entries alone. So this table is small, is read whole by sweeps, and has no other index.
CREATE TABLE holds (
    id               TEXT   NOT NULL PRIMARY KEY,
    account_id       TEXT   NOT NULL REFERENCES accounts (id),
    request_id       TEXT   NOT NULL,
    -- The run of a node that will end it.
    boot_id          TEXT   NOT NULL,
    parent_id        TEXT,
    source           TEXT   NOT NULL CHECK (source = 'web' OR source = 'api_key' OR source = 'agent'),
    source_id        TEXT,
    model            TEXT   NOT NULL,
    amount           BIGINT NOT NULL CHECK (amount >= 0),
    opened_at        BIGINT NOT NULL,
    period_start     BIGINT NOT NULL,
    period_number    BIGINT NOT NULL,
    -- Null while it is open.
    expired_at       BIGINT,
    plan_reserved    BIGINT NOT NULL CHECK (plan_reserved >= 0),
    top_up_reserved  BIGINT NOT NULL CHECK (top_up_reserved >= 0),
    checkpoint       BIGINT NOT NULL CHECK (checkpoint >= 0),
    plan_posted      BIGINT NOT NULL CHECK (plan_posted >= 0),
    top_up_posted    BIGINT NOT NULL CHECK (top_up_posted >= 0),
    overrun          BIGINT NOT NULL CHECK (overrun >= 0),
    -- What served the request so far, as JSON.
    usage            TEXT,
    CHECK (expired_at IS NULL OR plan_reserved + top_up_reserved = 0),
    CHECK (expired_at IS NOT NULL OR plan_posted + top_up_posted + overrun = 0)
) WITHOUT ROWID;

-- Why balances change, and how holds end: never changed, and written at its end alone.
CREATE TABLE entries (
    -- Later entries have higher numbers, over all accounts.
    number              INTEGER NOT NULL PRIMARY KEY,
    account_id          TEXT   NOT NULL REFERENCES accounts (id),
    -- From 1, without a gap.
    sequence            BIGINT NOT NULL CHECK (sequence > 0),
    at                  BIGINT NOT NULL,
    kind                TEXT   NOT NULL,
    plan_delta          BIGINT NOT NULL,
    top_up_delta        BIGINT NOT NULL,
    overrun             BIGINT NOT NULL,
    period_start        BIGINT NOT NULL,
    -- Of a grant, a top-up or a refund: what was asked for, as JSON, under which id.
    operation_id        TEXT,
    operation           TEXT   CHECK ((operation IS NULL) = (operation_id IS NULL)),
    -- Of the end of a hold: what the hold was opened for. Of an opening, the amount is how many entries it stands for.
    hold_id             TEXT,
    request_id          TEXT,
    parent_id           TEXT,
    source              TEXT,
    source_id           TEXT,
    model               TEXT,
    amount              BIGINT,
    -- What served the request, if anything did, and what it used.
    provider            TEXT,
    adapter_digest      TEXT,
    requests            BIGINT,
    tokens_input        BIGINT,
    tokens_cache_read   BIGINT,
    tokens_cache_write  BIGINT,
    tokens_output       BIGINT,
    images              BIGINT,
    -- In nano-USD.
    provider_cost       BIGINT,
    latency_ms          BIGINT,
    estimated_at        BIGINT,
    CHECK (kind = 'settlement' OR kind = 'release' OR kind = 'expiry' OR kind = 'late_settlement' OR kind = 'late_release'
        OR kind = 'grant' OR kind = 'lapse' OR kind = 'top_up' OR kind = 'refund' OR kind = 'opening'),
    CHECK ((kind = 'settlement' OR kind = 'release' OR kind = 'expiry' OR kind = 'late_settlement' OR kind = 'late_release')
        = (hold_id IS NOT NULL)),
    CHECK (kind <> 'settlement' OR (plan_delta <= 0 AND top_up_delta <= 0 AND overrun >= 0)),
    CHECK (kind <> 'release' OR (plan_delta = 0 AND top_up_delta = 0 AND overrun = 0)),
    CHECK (kind NOT IN ('grant', 'top_up') OR (plan_delta >= 0 AND top_up_delta >= 0)),
    CHECK (kind NOT IN ('lapse', 'refund') OR (plan_delta <= 0 AND top_up_delta <= 0))
);

-- What tells that a hold has ended. The ids of holds are ordered by time, so that this grows near its edge.
CREATE UNIQUE INDEX entries_by_hold ON entries (hold_id, kind) WHERE hold_id IS NOT NULL;

-- One for each account of which entries are archived.
CREATE UNIQUE INDEX entries_by_opening ON entries (account_id) WHERE kind = 'opening';

-- Those of requests have none.
CREATE UNIQUE INDEX entries_by_operation ON entries (operation_id) WHERE operation_id IS NOT NULL;

CREATE TRIGGER entries_are_not_updated BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;

-- What is archived leaves.
CREATE TRIGGER entries_are_not_deleted BEFORE DELETE ON entries
WHEN OLD.operation_id IS NOT NULL OR OLD.number > (SELECT number FROM entries_archived)
BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;

-- One row: up to which number entries may be replaced by openings, and the first day, in UTC, that has all of its entries.
CREATE TABLE entries_archived (
    number  BIGINT NOT NULL,
    day     BIGINT NOT NULL
);

INSERT INTO entries_archived (number, day) VALUES (0, 0);

-- One row: up to which number entries were verified. From the first moment of the day on, in UTC, usage is verified anew:
-- from entries that come after the other number.
CREATE TABLE entries_verified (
    number      BIGINT NOT NULL,
    day         BIGINT NOT NULL,
    day_number  BIGINT NOT NULL
);

INSERT INTO entries_verified (number, day, day_number) VALUES (0, 0, 0);

-- What the verified entries of each account add up to.
CREATE TABLE verified_accounts (
    account_id      TEXT   NOT NULL PRIMARY KEY,
    entries         BIGINT NOT NULL,
    plan_credits    BIGINT NOT NULL,
    top_up_credits  BIGINT NOT NULL
);

-- One row: up to which number entries are folded into the two tables below. Who wants exact figures adds those that come
-- after it.
CREATE TABLE entries_folded (
    number  BIGINT NOT NULL
);

INSERT INTO entries_folded (number) VALUES (0);

-- The entries of each account, in order.
CREATE TABLE account_entries (
    account_id  TEXT   NOT NULL,
    sequence    BIGINT NOT NULL,
    number      BIGINT NOT NULL,
    PRIMARY KEY (account_id, sequence)
) WITHOUT ROWID;

-- The sums of entries that have a provider.
CREATE TABLE usage_daily (
    account_id          TEXT   NOT NULL REFERENCES accounts (id),
    period_start        BIGINT NOT NULL,
    -- Its first moment, in UTC.
    day                 BIGINT NOT NULL,
    model               TEXT   NOT NULL,
    provider            TEXT   NOT NULL,
    source              TEXT   NOT NULL,
    -- The hash of the API key; empty where there is none.
    key_hash            TEXT   NOT NULL,
    requests            BIGINT NOT NULL,
    tokens_input        BIGINT NOT NULL,
    tokens_cache_read   BIGINT NOT NULL,
    tokens_cache_write  BIGINT NOT NULL,
    tokens_output       BIGINT NOT NULL,
    images              BIGINT NOT NULL,
    -- What accounts paid, and what they could not pay, in micro-credits.
    credits             BIGINT NOT NULL,
    overrun             BIGINT NOT NULL,
    -- In nano-USD.
    provider_cost       BIGINT NOT NULL,
    PRIMARY KEY (account_id, period_start, day, model, provider, source, key_hash)
) WITHOUT ROWID;

CREATE INDEX usage_daily_by_day ON usage_daily (day);

CREATE INDEX usage_daily_by_account ON usage_daily (account_id, day);

-- A row for each run of a node: holds of a run whose lease is over are settled by the others.
CREATE TABLE node_leases (
    boot_id      TEXT   NOT NULL PRIMARY KEY,
    started_at   BIGINT NOT NULL,
    lease_until  BIGINT NOT NULL
);

-- Written where the hold of the first request with a key is opened, and where that request has ended.
CREATE TABLE idempotency_keys (
    account_id      TEXT   NOT NULL,
    key             TEXT   NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    -- SHA-256 of method, path and body.
    request_digest  BLOB   NOT NULL CHECK (length(request_digest) = 32),
    -- The first request, its hold, and the run of a node that serves it.
    request_id      TEXT   NOT NULL,
    hold_id         TEXT   NOT NULL,
    boot_id         TEXT   NOT NULL,
    created_at      BIGINT NOT NULL,
    expires_at      BIGINT NOT NULL,
    completed_at    BIGINT,
    -- The answer, sealed; null where it is too long or was streamed.
    answer          BLOB,
    PRIMARY KEY (account_id, key),
    CHECK (answer IS NULL OR completed_at IS NOT NULL)
);

CREATE INDEX idempotency_keys_by_expiry ON idempotency_keys (expires_at);
