-- An account has credits, a plan, budgets and API keys. Each row of `users` is an account: a person's personal account,
-- an organisation, or a service account, which only holds keys of its organisation. All other tables name accounts by
-- the id of this row, so that a person's ledger entries keep their account id.
ALTER TABLE users ADD COLUMN kind TEXT NOT NULL DEFAULT 'person' CHECK (kind IN ('person', 'organisation', 'service'));
-- The name of an organisation or a service account; the display name of a person, if the issuer has one.
ALTER TABLE users ADD COLUMN name TEXT;
-- The e-mail address of a person, verified by the issuer, in lower case.
ALTER TABLE users ADD COLUMN email TEXT;
-- The time at which an organisation or a service account was deleted.
ALTER TABLE users ADD COLUMN deleted_at BIGINT;

-- The requests and tokens per minute of parts of the account, as JSON; null if there are no such rates.
ALTER TABLE users ADD COLUMN rates TEXT;

CREATE INDEX users_by_email ON users (email) WHERE email IS NOT NULL;
CREATE INDEX users_organisations ON users (id) WHERE kind = 'organisation';

-- People and service accounts in organisations.
CREATE TABLE members (
    organisation_id  TEXT   NOT NULL REFERENCES users (id),
    user_id          TEXT   NOT NULL REFERENCES users (id),
    role             TEXT   NOT NULL CHECK (role IN ('owner', 'admin', 'billing', 'member', 'viewer')),
    created_at       BIGINT NOT NULL,
    PRIMARY KEY (organisation_id, user_id)
);

CREATE INDEX members_by_user ON members (user_id, organisation_id);

CREATE TABLE invitations (
    id               TEXT   NOT NULL PRIMARY KEY,
    organisation_id  TEXT   NOT NULL REFERENCES users (id),
    -- In lower case.
    email            TEXT   NOT NULL,
    role             TEXT   NOT NULL CHECK (role IN ('admin', 'billing', 'member', 'viewer')),
    -- SHA-256 of the code in the link. The code itself is stored nowhere.
    code_hash        {bytes_5}  NOT NULL UNIQUE CHECK (length(code_hash) = 32),
    invited_by       TEXT   NOT NULL REFERENCES users (id),
    created_at       BIGINT NOT NULL,
    expires_at       BIGINT NOT NULL,
    accepted_by      TEXT   REFERENCES users (id),
    -- The time at which it was accepted, revoked or replaced.
    ended_at         BIGINT
);

CREATE INDEX invitations_by_organisation ON invitations (organisation_id, created_at, id);
CREATE INDEX invitations_by_email ON invitations (email, id);
CREATE INDEX invitations_by_member ON invitations (accepted_by, id) WHERE accepted_by IS NOT NULL;
CREATE UNIQUE INDEX invitations_open ON invitations (organisation_id, email) WHERE ended_at IS NULL;

-- Groups of keys and budgets in an organisation.
CREATE TABLE projects (
    id               TEXT   NOT NULL PRIMARY KEY,
    organisation_id  TEXT   NOT NULL REFERENCES users (id),
    name             TEXT   NOT NULL,
    created_at       BIGINT NOT NULL,
    archived_at      BIGINT
);

CREATE INDEX projects_by_organisation ON projects (organisation_id, created_at, id);

-- `api_keys.user_id` is the account that pays. The holder is the person or the service account that uses the key; null
-- for keys of a personal account.
ALTER TABLE api_keys ADD COLUMN holder_id TEXT REFERENCES users (id);
ALTER TABLE api_keys ADD COLUMN project_id TEXT REFERENCES projects (id);

CREATE INDEX api_keys_by_holder ON api_keys (holder_id, user_id) WHERE holder_id IS NOT NULL;
CREATE INDEX api_keys_by_project ON api_keys (project_id) WHERE project_id IS NOT NULL;

-- The time at which a budget of the account last reached 80 or 100 %.
ALTER TABLE accounts ADD COLUMN budget_alert_at BIGINT;

CREATE INDEX accounts_by_budget_alert ON accounts (budget_alert_at) WHERE budget_alert_at IS NOT NULL;

-- For the export of a person's data.
CREATE INDEX payment_checkouts_by_user ON payment_checkouts (user_id, id);
