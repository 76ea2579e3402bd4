-- What an account owes: credits that a refund takes back and that were spent already. The next credits pay for it.
ALTER TABLE accounts ADD COLUMN owed BIGINT NOT NULL DEFAULT 0 CHECK (owed >= 0);

-- Since when its paid plan is known to end with the period, without a grace; null where it is to be renewed.
ALTER TABLE accounts ADD COLUMN cancelled_at BIGINT;

-- Below how many credits its user wants to be told, or to have more bought; and since when it is below.
ALTER TABLE accounts ADD COLUMN low_below BIGINT;
ALTER TABLE accounts ADD COLUMN low_since BIGINT;

CREATE INDEX accounts_by_low_since ON accounts (low_since) WHERE low_since IS NOT NULL;

-- The change of what the account owes: more with a refund, less with what is taken of later credits, which is a refund
-- without an operation. What an operator puts right is a grant, a top-up or a refund, too; its operation says so.
ALTER TABLE entries ADD COLUMN owed BIGINT NOT NULL DEFAULT 0;

ALTER TABLE verified_accounts ADD COLUMN owed BIGINT NOT NULL DEFAULT 0;
