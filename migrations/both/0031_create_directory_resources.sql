-- Users and groups that an issuer's directory provisions (SCIM 2.0).
CREATE TABLE directory_resources (
    -- A user's id, or a group's.
    id           TEXT   NOT NULL PRIMARY KEY,
    kind         TEXT   NOT NULL CHECK (kind IN ('user', 'group')),
    issuer       TEXT   NOT NULL,
    -- The user's name in the directory, or the group's display name, in lower case.
    name         TEXT   NOT NULL,
    external_id  TEXT,
    -- The attributes that weir keeps, as JSON.
    document     TEXT   NOT NULL,
    created_at   BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL
);

CREATE UNIQUE INDEX directory_users_by_name ON directory_resources (issuer, name) WHERE kind = 'user';
CREATE INDEX directory_resources_by_name ON directory_resources (issuer, kind, name);
CREATE INDEX directory_resources_by_external_id ON directory_resources (issuer, kind, external_id);
CREATE INDEX directory_resources_by_age ON directory_resources (issuer, kind, created_at, id);

CREATE TABLE directory_members (
    group_id  TEXT NOT NULL REFERENCES directory_resources (id),
    user_id   TEXT NOT NULL REFERENCES directory_resources (id),
    PRIMARY KEY (group_id, user_id)
);

CREATE INDEX directory_members_by_user ON directory_members (user_id, group_id);

-- The source of a disabled user: `directory` if the issuer's directory disabled the user; null if an operator did.
ALTER TABLE users ADD COLUMN disabled_by TEXT;
