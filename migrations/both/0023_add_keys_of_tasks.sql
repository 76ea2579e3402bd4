-- The id of the API key that a task was last defined with; null if its owner defined it in person. Each start of the task
-- checks that the key works, its models and its budgets.
ALTER TABLE tasks ADD COLUMN key_id TEXT;
