CREATE TABLE audit_events (
    number   INTEGER PRIMARY KEY,
    at       BIGINT NOT NULL,
    -- The same event, so many times from then on within a second, or within ten minutes where anybody can repeat it.
    count    BIGINT NOT NULL CHECK (count > 0),
    kind     TEXT   NOT NULL,
    -- Who brought it about, where that is known, such as user:usr_… or local:0.
    actor    TEXT,
    method   TEXT,
    reason   TEXT,
    user_id  TEXT,
    key_id   TEXT
);

CREATE INDEX audit_events_by_time ON audit_events (at);
