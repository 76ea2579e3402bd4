-- Which recording of a slot each run of a node has taken up: whoever begins one waits for those that are live.
CREATE TABLE recording_nodes (
    slot      TEXT   NOT NULL,
    boot_id   TEXT   NOT NULL,
    -- When that recording has begun.
    begun_at  BIGINT NOT NULL,
    PRIMARY KEY (slot, boot_id)
);
