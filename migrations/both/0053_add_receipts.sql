-- The facts behind a request's charge, as JSON: usage as the provider reported it, prices, the version of the catalog. Null in
-- entries of earlier releases.
ALTER TABLE entries ADD COLUMN receipt TEXT;

-- The SHA-256 of the account's previous entry, zeros for the first one; null in entries of earlier releases and in openings.
ALTER TABLE entries ADD COLUMN previous_hash {bytes};

-- The SHA-256 of the account's last entry with a hash; null before the first one.
ALTER TABLE accounts ADD COLUMN last_hash {bytes};
