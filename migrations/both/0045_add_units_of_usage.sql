-- The unit in which a request's price counts. Rows of nodes of the last release have none: readers take the unit of the
-- row's model from `model_kinds`, which nodes fill from their catalogs.
CREATE TABLE model_kinds (
    model   TEXT   NOT NULL PRIMARY KEY,
    kind    TEXT   NOT NULL,
    unit    TEXT   NOT NULL,
    -- Exports of months that had ended by then count as before.
    kept_at BIGINT NOT NULL
);
CREATE INDEX model_kinds_by_time ON model_kinds (kept_at);
ALTER TABLE entries ADD COLUMN unit TEXT;
ALTER TABLE usage_daily ADD COLUMN unit TEXT;
ALTER TABLE platform_daily ADD COLUMN unit TEXT;
