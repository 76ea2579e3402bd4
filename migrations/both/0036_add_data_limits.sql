-- Limits on providers as a JSON object of `regions` and `max_retention_days`; null for none. An account has some only if it is an
-- organisation.
ALTER TABLE users ADD COLUMN data_limits TEXT;
ALTER TABLE api_keys ADD COLUMN data_limits TEXT;
