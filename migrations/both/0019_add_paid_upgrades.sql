-- The currency of the amount, as the processor writes it; null of payments from before weir read it, which were in 'usd'.
ALTER TABLE payments ADD COLUMN currency TEXT;

-- The credits that paid changes of plan have given within a period.
CREATE TABLE payment_upgrades (
    subscription_id  TEXT   NOT NULL,
    period_end       BIGINT NOT NULL,
    -- In micro-credits.
    given            BIGINT NOT NULL DEFAULT 0,
    -- What it is being changed to: written down before the ledger is asked.
    giving           BIGINT,
    -- The moment in the period that this change names to the ledger, so that a repeat names the same.
    within           BIGINT,
    -- How often it was changed.
    steps            BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (subscription_id, period_end)
);
