-- What a running swarm waits for without an executor, until `lease_until`: sealed JSON; null while it waits for nothing.
ALTER TABLE swarm_runs ADD COLUMN waiting {bytes};
