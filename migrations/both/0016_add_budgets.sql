-- How much the account and its keys may spend in which time, with what was spent and is held of it, as JSON; null where
-- there is no budget.
ALTER TABLE accounts ADD COLUMN budgets TEXT;

-- The id of the key whose budgets it counts for; null where it counts for none.
ALTER TABLE holds ADD COLUMN budget_key TEXT;

ALTER TABLE entries ADD COLUMN budget_key TEXT;

-- The ids of the models that a key may use, as a JSON array; null where it may use all.
ALTER TABLE api_keys ADD COLUMN models TEXT;

-- The id of the key that the swarm was asked for with, whose budgets it counts for.
ALTER TABLE swarm_runs ADD COLUMN key_id TEXT;
