-- The kinds of limits of a key that a manager of its organisation set, separated by commas: `budgets`, `rates`, `data_limits`
-- and `filter_options`. Null for keys of earlier releases, whose limits count as set by a manager.
ALTER TABLE api_keys ADD COLUMN managed_limits TEXT;
