-- What a failed request's record says beyond its columns: the field, weir's message, the limit, and the provider's status
-- and text of each attempt. Sealed; null in rows of older versions.
ALTER TABLE failed_requests ADD COLUMN details {bytes};

-- Failed requests beyond the limit of records of an account and minute, by minute. For 30 days.
CREATE TABLE failed_request_counts (
    account_id       TEXT   NOT NULL,
    -- The first moment of the minute.
    minute           BIGINT NOT NULL,
    requests         BIGINT NOT NULL CHECK (requests > 0),
    PRIMARY KEY (account_id, minute)
);

CREATE INDEX failed_request_counts_in_order ON failed_request_counts (minute);
