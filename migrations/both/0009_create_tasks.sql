-- Tasks: swarms that are asked for again and again. What people wrote is sealed.
CREATE TABLE tasks (
    id             TEXT   NOT NULL PRIMARY KEY,
    user_id        TEXT   NOT NULL REFERENCES users (id),
    -- The name, the swarm and the schedule: sealed JSON.
    definition     {bytes_5}  NOT NULL,
    -- The id of the sealing key: what is sealed under an older one is sealed anew.
    sealing_key    BIGINT NOT NULL,
    -- When its schedule next fires; null without one, and while it is paused.
    next_fire_at   BIGINT,
    created_at     BIGINT NOT NULL,
    updated_at     BIGINT NOT NULL
);

CREATE INDEX tasks_by_user ON tasks (user_id, id);

CREATE INDEX tasks_due ON tasks (next_fire_at) WHERE next_fire_at IS NOT NULL;

CREATE INDEX tasks_by_sealing_key ON tasks (sealing_key);

-- When a task was to start, whatever came of it.
CREATE TABLE task_starts (
    task_id       TEXT   NOT NULL REFERENCES tasks (id),
    -- What tells a repeat: a schedule's slot, a message's id, or a client's key.
    cause         TEXT   NOT NULL,
    trigger_type  TEXT   NOT NULL CHECK (trigger_type IN ('manual', 'schedule', 'event')),
    -- The moment that its own schedule named.
    slot          BIGINT,
    started_at    BIGINT NOT NULL,
    -- Until when nobody else starts it.
    claimed_until BIGINT NOT NULL,
    -- The run, once there is one.
    execution_id  TEXT,
    -- Why there is none: sealed JSON.
    refusal       {bytes},
    PRIMARY KEY (task_id, cause),
    CHECK (execution_id IS NULL OR refusal IS NULL)
);

-- A slot of a schedule fires once, whichever node sees it first.
CREATE UNIQUE INDEX schedule_fires ON task_starts (task_id, slot) WHERE slot IS NOT NULL;

CREATE INDEX task_starts_by_time ON task_starts (task_id, started_at);

-- Those that have begun, and of which nothing is known yet.
CREATE INDEX task_starts_open ON task_starts (claimed_until) WHERE execution_id IS NULL AND refusal IS NULL;

-- What the tools of a task's agents may prove themselves with.
CREATE TABLE task_credentials (
    task_id      TEXT   NOT NULL REFERENCES tasks (id),
    name         TEXT   NOT NULL,
    -- The secret, and what it is bound to: sealed JSON.
    sealed       {bytes_5}  NOT NULL,
    sealing_key  BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (task_id, name)
);

CREATE INDEX task_credentials_by_sealing_key ON task_credentials (sealing_key);
