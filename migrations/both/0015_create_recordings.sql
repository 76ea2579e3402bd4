-- Which slots' exchanges operators have recorded, one row a slot: the last time.
CREATE TABLE recordings (
    slot        TEXT   NOT NULL PRIMARY KEY,
    begun_at    BIGINT NOT NULL,
    until_at    BIGINT NOT NULL,
    -- Of all exchanges, in parts of ten thousand.
    share       BIGINT NOT NULL CHECK (share BETWEEN 1 AND 10000),
    -- Bytes that may be kept, and those that are.
    most_bytes  BIGINT NOT NULL CHECK (most_bytes > 0),
    kept_bytes  BIGINT NOT NULL DEFAULT 0,
    exchanges   BIGINT NOT NULL DEFAULT 0,
    actor       TEXT   NOT NULL
);

-- What was asked of an adapter, and what its upstream answered: sealed.
CREATE TABLE recorded_exchanges (
    id       TEXT   NOT NULL PRIMARY KEY,
    slot     TEXT   NOT NULL,
    at       BIGINT NOT NULL,
    content  {bytes_5}  NOT NULL
);

CREATE INDEX recorded_exchanges_by_slot ON recorded_exchanges (slot, id);
