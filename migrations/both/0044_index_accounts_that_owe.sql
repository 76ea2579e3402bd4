-- Finds accounts that owe credits. Most accounts owe nothing, so the index is small.
CREATE INDEX accounts_that_owe ON accounts (id) WHERE owed > 0;
