-- Credits that a node has reserved for requests which it opens in memory. Each part of an account with budgets has blocks
-- of its own.
CREATE TABLE blocks (
    account_id       TEXT   NOT NULL REFERENCES accounts (id),
    -- The run of the node.
    boot_id          TEXT   NOT NULL,
    -- The parts whose budgets the block counts for; empty if none.
    parts            TEXT   NOT NULL,
    -- 1 if the block has bought credits only, else 0.
    top_up_only      BIGINT NOT NULL CHECK (top_up_only IN (0, 1)),
    period_start     BIGINT NOT NULL,
    period_number    BIGINT NOT NULL,
    plan_reserved    BIGINT NOT NULL CHECK (plan_reserved >= 0),
    top_up_reserved  BIGINT NOT NULL CHECK (top_up_reserved >= 0),
    -- The time of the last batch that changed it.
    used_at          BIGINT NOT NULL,
    -- The time at which another node needed its credits.
    called_at        BIGINT,
    PRIMARY KEY (account_id, boot_id, parts, top_up_only)
);

CREATE INDEX blocks_by_run ON blocks (boot_id);
CREATE INDEX called_blocks ON blocks (boot_id) WHERE called_at IS NOT NULL;
