-- The accounts with requests in each month, up to `platform_folded`, so that administrators' reports need not group the
-- accounts' sums.
CREATE TABLE active_accounts (
    -- In UTC, as YYYY-MM.
    month       TEXT NOT NULL,
    account_id  TEXT NOT NULL,
    PRIMARY KEY (month, account_id)
);

-- Meanwhile no node folds: the watermark and the rows belong together.
SELECT number FROM entries_folded FOR UPDATE;

INSERT INTO active_accounts (month, account_id)
SELECT DISTINCT to_char(to_timestamp(day / 1000) AT TIME ZONE 'UTC', 'YYYY-MM'), account_id FROM usage_daily WHERE requests > 0;
