-- The accounts with requests in each month, up to `platform_folded`, so that administrators' reports need not group the
-- accounts' sums.
CREATE TABLE active_accounts (
    -- In UTC, as YYYY-MM.
    month       TEXT NOT NULL,
    account_id  TEXT NOT NULL,
    PRIMARY KEY (month, account_id)
) WITHOUT ROWID;

INSERT INTO active_accounts (month, account_id)
SELECT DISTINCT strftime('%Y-%m', day / 1000, 'unixepoch'), account_id FROM usage_daily WHERE requests > 0;
