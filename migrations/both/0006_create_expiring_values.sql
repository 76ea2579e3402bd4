-- What is kept until a moment where there is no Redis, such as sessions. Who replaces a value names the version that it
-- has seen.
CREATE TABLE expiring_values (
    name        TEXT   NOT NULL PRIMARY KEY,
    version     BIGINT NOT NULL,
    value       {bytes_5}  NOT NULL,
    expires_at  BIGINT NOT NULL
);

CREATE INDEX expiring_values_by_end ON expiring_values (expires_at);
