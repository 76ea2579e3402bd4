-- Model requests of known accounts that ended in an error: at most 600 of an account and hour, for 30 days. They have no
-- prompts and no messages.
CREATE TABLE failed_requests (
    request_id       TEXT   NOT NULL PRIMARY KEY,
    -- The time of its end.
    at               BIGINT NOT NULL,
    account_id       TEXT   NOT NULL,
    -- The person or the service account that sent it.
    user_id          TEXT   NOT NULL,
    key_id           TEXT,
    project_id       TEXT,
    -- The id in the catalog; null for unknown models.
    model            TEXT,
    -- The provider of the last attempt.
    provider         TEXT,
    -- The providers of earlier attempts, separated by commas.
    earlier          TEXT,
    code             TEXT   NOT NULL,
    -- The HTTP status; null if the client had disconnected.
    status           BIGINT,
    latency_ms       BIGINT NOT NULL,
    attempts         BIGINT NOT NULL,
    trace_id         TEXT
){without_rowid};

CREATE INDEX failed_requests_in_order ON failed_requests (at, request_id);
CREATE INDEX failed_requests_by_account ON failed_requests (account_id, at, request_id);
CREATE INDEX failed_requests_by_code ON failed_requests (code, at, request_id);
CREATE INDEX failed_requests_by_key ON failed_requests (key_id, at, request_id) WHERE key_id IS NOT NULL;
CREATE INDEX failed_requests_by_model ON failed_requests (model, at, request_id) WHERE model IS NOT NULL;
CREATE INDEX failed_requests_by_provider ON failed_requests (provider, at, request_id) WHERE provider IS NOT NULL;
CREATE INDEX failed_requests_by_user ON failed_requests (user_id, request_id);
