-- Which keys this database's contents are sealed under: what tells one from another, not the keys.
CREATE TABLE sealing_keys (
    id           BIGINT NOT NULL PRIMARY KEY CHECK (id > 0),
    fingerprint  {bytes_5}  NOT NULL CHECK (length(fingerprint) = 16)
);
