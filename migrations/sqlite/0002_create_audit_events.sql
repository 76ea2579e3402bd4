CREATE TABLE audit_events (
    at       BIGINT NOT NULL,
    -- The same event, so many times from then on within a second.
    count    BIGINT NOT NULL CHECK (count > 0),
    kind     TEXT   NOT NULL,
    method   TEXT,
    reason   TEXT,
    user_id  TEXT,
    key_id   TEXT
);

CREATE INDEX audit_events_by_time ON audit_events (at);
