CREATE TABLE users (
    id           TEXT   NOT NULL PRIMARY KEY,
    created_at   BIGINT NOT NULL,
    -- Whom an issuer's tokens name; null for users who have API keys only.
    issuer       TEXT,
    subject      TEXT,
    plan         TEXT   NOT NULL DEFAULT 'free',
    admin_since  BIGINT,
    -- Since when an operator lets the user do nothing.
    disabled_at  BIGINT,
    CHECK ((issuer IS NULL) = (subject IS NULL))
);

CREATE UNIQUE INDEX users_by_subject ON users (issuer, subject);

CREATE TABLE api_keys (
    id              TEXT   NOT NULL PRIMARY KEY,
    user_id         TEXT   NOT NULL REFERENCES users (id),
    name            TEXT   NOT NULL,
    prefix          TEXT   NOT NULL,
    -- HMAC-SHA256 of the raw key under the pepper of this version; the raw key is kept nowhere.
    hash            {bytes_5}  NOT NULL,
    pepper_version  BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    expires_at      BIGINT NOT NULL,
    disabled_at     BIGINT,
    -- Written behind, at most once a minute for each key.
    last_used_at    BIGINT,
    CHECK (length(hash) = 32),
    CHECK (expires_at > created_at)
);

CREATE INDEX api_keys_by_user ON api_keys (user_id, created_at);

-- Every hash that a key has had, under one pepper after another: what its charges name.
CREATE TABLE api_key_hashes (
    -- In hexadecimal.
    hash    TEXT NOT NULL PRIMARY KEY,
    key_id  TEXT NOT NULL REFERENCES api_keys (id)
){without_rowid};

CREATE INDEX api_key_hashes_by_key ON api_key_hashes (key_id);

-- Which peppers the keys of this database are stored under: what tells one from another, not the peppers.
CREATE TABLE api_key_peppers (
    version      BIGINT NOT NULL PRIMARY KEY CHECK (version > 0),
    fingerprint  {bytes_5}  NOT NULL CHECK (length(fingerprint) = 16)
);
