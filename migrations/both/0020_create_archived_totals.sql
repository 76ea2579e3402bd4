-- What budgets without a window have counted of entries that are in the archive, so that it can be recomputed.
CREATE TABLE archived_totals (
    account_id  TEXT   NOT NULL,
    -- The key whose budget it is; empty for the account's.
    key_id      TEXT   NOT NULL,
    -- The number of entries that came before the budget: it tells one budget from the next.
    since       BIGINT NOT NULL,
    -- In micro-credits; null where entries were archived before this was noted.
    spent       BIGINT,
    PRIMARY KEY (account_id, key_id, since)
);
