-- Few entries have an operation's id. Those of requests have none, and need not be in its index: it is one more page to write
-- with each. SQLite takes a constraint away only with its table.
CREATE TABLE new_entries (
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
    hold_id             TEXT   REFERENCES holds (id),
    source              TEXT,
    source_id           TEXT,
    model               TEXT,
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
    PRIMARY KEY (account_id, sequence),
    CHECK (kind = 'settlement' OR kind = 'expiry' OR kind = 'late_settlement' OR kind = 'late_release'
        OR kind = 'grant' OR kind = 'lapse' OR kind = 'top_up' OR kind = 'refund'),
    CHECK ((kind = 'settlement' OR kind = 'expiry' OR kind = 'late_settlement' OR kind = 'late_release') = (hold_id IS NOT NULL)),
    CHECK (kind <> 'settlement' OR (plan_delta <= 0 AND top_up_delta <= 0 AND overrun >= 0)),
    CHECK (kind NOT IN ('grant', 'top_up') OR (plan_delta >= 0 AND top_up_delta >= 0)),
    CHECK (kind NOT IN ('lapse', 'refund') OR (plan_delta <= 0 AND top_up_delta <= 0))
);

INSERT INTO new_entries SELECT * FROM entries;
DROP TABLE entries;
ALTER TABLE new_entries RENAME TO entries;

CREATE UNIQUE INDEX entries_by_operation ON entries (operation_id) WHERE operation_id IS NOT NULL;

CREATE TRIGGER entries_are_not_updated BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;

CREATE TRIGGER entries_are_not_deleted BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END;
