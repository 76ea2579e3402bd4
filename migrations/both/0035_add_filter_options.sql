-- Options for filters as a JSON object of texts; null for none. An operator sets an account's, and its owner a key's.
ALTER TABLE users ADD COLUMN filter_options TEXT;
ALTER TABLE api_keys ADD COLUMN filter_options TEXT;
