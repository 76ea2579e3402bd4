CREATE TABLE users (
    id          TEXT   NOT NULL PRIMARY KEY,
    created_at  BIGINT NOT NULL
);

CREATE TABLE api_keys (
    id              TEXT   NOT NULL PRIMARY KEY,
    user_id         TEXT   NOT NULL REFERENCES users (id),
    name            TEXT   NOT NULL,
    prefix          TEXT   NOT NULL,
    -- HMAC-SHA256 of the raw key under the pepper of this version; the raw key is kept nowhere.
    hash            BYTEA  NOT NULL,
    pepper_version  BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    expires_at      BIGINT NOT NULL,
    disabled_at     BIGINT,
    CHECK (length(hash) = 32),
    CHECK (expires_at > created_at)
);

CREATE INDEX api_keys_by_user ON api_keys (user_id, created_at);
