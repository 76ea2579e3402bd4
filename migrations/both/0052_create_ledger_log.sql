-- Settlements of requests, in batches: a node's run appends them, so that no settlement waits for the row of an account, and
-- folds them into accounts and entries later. `records` is a JSON array.
CREATE TABLE ledger_log (
    boot_id  TEXT   NOT NULL,
    -- From 1, without a gap.
    ordinal  BIGINT NOT NULL,
    records  TEXT   NOT NULL,
    PRIMARY KEY (boot_id, ordinal)
);

-- The number of times that other nodes have ended the run: an append names it, so that nothing is appended to a run that others
-- have ended.
ALTER TABLE node_leases ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;

-- The time at which others ended the run; null after each renewal.
ALTER TABLE node_leases ADD COLUMN fenced_at BIGINT;

-- The time from which the run's node folds the logs of other runs; null in rows of earlier releases.
ALTER TABLE node_leases ADD COLUMN folds_since BIGINT;
