-- Whether weir stores the prompts and responses of a key's requests, and of an organisation's. An account has it only if it is an
-- organisation.
ALTER TABLE api_keys ADD COLUMN content_log BIGINT NOT NULL DEFAULT 0 CHECK (content_log IN (0, 1));
ALTER TABLE users ADD COLUMN content_log BIGINT NOT NULL DEFAULT 0 CHECK (content_log IN (0, 1));

-- Prompts and responses of requests, for `content_log.days`.
CREATE TABLE content_logs (
    request_id       TEXT   NOT NULL PRIMARY KEY,
    -- The time of its end.
    at               BIGINT NOT NULL,
    account_id       TEXT   NOT NULL,
    -- The person or the service account that sent it.
    user_id          TEXT   NOT NULL,
    key_id           TEXT,
    -- 1 if the organisation chose to store it, so that its administrators see it.
    for_organisation BIGINT NOT NULL CHECK (for_organisation IN (0, 1)),
    -- Sealed.
    content          {bytes_5}  NOT NULL
);

CREATE INDEX content_logs_in_order ON content_logs (at);
CREATE INDEX content_logs_by_account ON content_logs (account_id, at);
CREATE INDEX content_logs_by_user ON content_logs (user_id, request_id);
CREATE INDEX content_logs_by_key ON content_logs (key_id) WHERE key_id IS NOT NULL;
