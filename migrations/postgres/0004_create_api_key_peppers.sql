-- Which peppers the keys of this database are stored under: what tells one from another, not the peppers.
CREATE TABLE api_key_peppers (
    version      BIGINT NOT NULL PRIMARY KEY CHECK (version > 0),
    fingerprint  BYTEA  NOT NULL CHECK (length(fingerprint) = 16)
);
