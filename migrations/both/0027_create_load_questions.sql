-- Whether each live node can load a component that is about to be activated: whoever activates it asks, and waits.
CREATE TABLE load_questions (
    id        TEXT   PRIMARY KEY,
    slot      TEXT   NOT NULL,
    digest    TEXT   NOT NULL,
    asked_at  BIGINT NOT NULL
);

CREATE TABLE load_answers (
    question_id  TEXT NOT NULL,
    boot_id      TEXT NOT NULL,
    -- Why it does not load there; null if it does.
    problem      TEXT,
    PRIMARY KEY (question_id, boot_id)
);
