-- Claims read the runs of a user that are not over, and no others. `ended_at` is in it so that SQLite reads the index alone:
-- a row's later columns lie behind its request, which may be long.
CREATE INDEX swarm_runs_open_by_user ON swarm_runs (user_id, lease_until, id, ended_at) WHERE ended_at IS NULL;

-- Operators list the runs that are not over, the last one first.
CREATE INDEX swarm_runs_open_by_id ON swarm_runs (id, ended_at) WHERE ended_at IS NULL;

-- Old runs are deleted by the time of their end.
CREATE INDEX swarm_runs_by_end ON swarm_runs (ended_at, id) WHERE ended_at IS NOT NULL;

-- Sealed bytes that are kept of the run. Runs of earlier releases count as 0.
ALTER TABLE swarm_runs ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;

-- Model calls without a known price: those under way, and those that were under way when their run ended.
CREATE INDEX swarm_steps_unpriced ON swarm_steps (run_id) WHERE state = 'intended' AND ordinal = 0;

-- One row for each user who has asked for a swarm. It refers to no other table: a foreign key would make claims wait for
-- requests of the same user.
CREATE TABLE swarm_users (
    user_id        TEXT   NOT NULL PRIMARY KEY,
    -- When an executor last began a run of the user.
    last_begun_at  BIGINT NOT NULL,
    -- Sealed bytes of all runs that are kept.
    kept_bytes     BIGINT NOT NULL CHECK (kept_bytes >= 0)
);

-- The minute, since 1970, in which a task was last started, and what started it.
ALTER TABLE tasks ADD COLUMN start_minute BIGINT;

ALTER TABLE tasks ADD COLUMN start_cause TEXT;

-- Old starts are deleted by age.
CREATE INDEX task_starts_by_age ON task_starts (started_at);
