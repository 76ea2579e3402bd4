-- Swarms as they were asked for, and how far they are. What people and models wrote is sealed.
CREATE TABLE swarm_runs (
    id                   TEXT   NOT NULL PRIMARY KEY,
    user_id              TEXT   NOT NULL REFERENCES users (id),
    -- As whoever asked names them.
    swarm_id             TEXT   NOT NULL,
    task_id              TEXT,
    -- The request, with every default in its place: sealed JSON.
    request              {bytes_5}  NOT NULL,
    -- The most that it may spend, in micro-credits.
    budget               BIGINT NOT NULL CHECK (budget >= 0),
    status               TEXT   NOT NULL CHECK (status IN ('queued', 'running', 'completed', 'partial', 'failed', 'cancelled')),
    -- The client's Idempotency-Key, and the SHA-256 of what came with it.
    client_key           TEXT,
    request_digest       {bytes},
    -- How often it was taken up. Whoever holds an older number writes nothing any more.
    fence                BIGINT NOT NULL CHECK (fence >= 0),
    -- How often it was taken up since a step of it was last done.
    recoveries           BIGINT NOT NULL CHECK (recoveries >= 0),
    lease_owner          TEXT,
    lease_until          BIGINT NOT NULL,
    -- The hold that its model calls draw on.
    parent_hold          TEXT,
    -- The number of its last event.
    last_event           BIGINT NOT NULL CHECK (last_event >= 0),
    agents_total         BIGINT NOT NULL CHECK (agents_total > 0),
    agents_completed     BIGINT NOT NULL CHECK (agents_completed >= 0),
    -- In micro-credits.
    credits              BIGINT NOT NULL CHECK (credits >= 0),
    tokens_in            BIGINT NOT NULL CHECK (tokens_in >= 0),
    tokens_out           BIGINT NOT NULL CHECK (tokens_out >= 0),
    -- The last agent's output and what went wrong: sealed JSON, once it is over.
    outcome              {bytes},
    created_at           BIGINT NOT NULL,
    deadline             BIGINT NOT NULL,
    cancel_requested_at  BIGINT,
    ended_at             BIGINT,
    CHECK ((client_key IS NULL) = (request_digest IS NULL)),
    CHECK ((ended_at IS NULL) = (status IN ('queued', 'running')))
);

CREATE UNIQUE INDEX swarm_runs_by_client_key ON swarm_runs (user_id, client_key) WHERE client_key IS NOT NULL;

-- Those that are not over: what executors look through.
CREATE INDEX swarm_runs_open ON swarm_runs (lease_until) WHERE ended_at IS NULL;

CREATE INDEX swarm_runs_by_user ON swarm_runs (user_id, id);

-- The agents of a swarm that have begun, in the order in which they run.
CREATE TABLE swarm_agents (
    run_id      TEXT   NOT NULL REFERENCES swarm_runs (id),
    number      BIGINT NOT NULL CHECK (number >= 0),
    started_at  BIGINT NOT NULL,
    -- Null while it runs.
    ended_at    BIGINT,
    -- Its result: sealed JSON.
    result      {bytes},
    PRIMARY KEY (run_id, number),
    CHECK ((ended_at IS NULL) = (result IS NULL))
);

-- What an agent does, each step noted before it is done: a call of a model (ordinal 0), then the tools that it asked for.
CREATE TABLE swarm_steps (
    run_id            TEXT   NOT NULL REFERENCES swarm_runs (id),
    agent             BIGINT NOT NULL CHECK (agent >= 0),
    iteration         BIGINT NOT NULL CHECK (iteration > 0),
    ordinal           BIGINT NOT NULL CHECK (ordinal >= 0),
    -- SHA-256 of what goes in.
    input_hash        {bytes_5}  NOT NULL CHECK (length(input_hash) = 32),
    -- What a tool's call does outside; null for a model's.
    effect            TEXT   CHECK (effect IN ('read', 'idempotent', 'unsafe')),
    -- What tells a repeat to whoever is asked.
    idempotency_key   TEXT   NOT NULL,
    -- Tokens, of a model's call.
    output_limit      BIGINT,
    state             TEXT   NOT NULL CHECK (state IN ('intended', 'done', 'failed', 'uncertain', 'blocked')),
    -- What came of it: sealed JSON.
    output            {bytes},
    credits           BIGINT NOT NULL CHECK (credits >= 0),
    tokens_in         BIGINT NOT NULL CHECK (tokens_in >= 0),
    tokens_out        BIGINT NOT NULL CHECK (tokens_out >= 0),
    -- Of the tool that was called.
    component_digest  TEXT,
    intended_at       BIGINT NOT NULL,
    ended_at          BIGINT,
    PRIMARY KEY (run_id, agent, iteration, ordinal),
    CHECK ((state = 'intended') = (ended_at IS NULL))
);

-- What clients are told, written with what it tells.
CREATE TABLE swarm_events (
    run_id  TEXT   NOT NULL REFERENCES swarm_runs (id),
    -- From 1 without a gap.
    number  BIGINT NOT NULL CHECK (number > 0),
    name    TEXT   NOT NULL,
    -- Sealed JSON.
    data    {bytes_5}  NOT NULL,
    PRIMARY KEY (run_id, number)
);
