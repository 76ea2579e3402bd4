-- Finds the latest budget alerts of all accounts.
CREATE INDEX notices_by_kind ON notices (kind, created_at);
