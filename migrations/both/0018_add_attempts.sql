-- How often upstreams were asked for the request; of one that an earlier entry told of, the change. Null where nothing was
-- delivered, and in entries from before.
ALTER TABLE entries ADD COLUMN attempts BIGINT;
