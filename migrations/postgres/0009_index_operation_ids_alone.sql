-- Few entries have an operation's id. Those of requests have none, and need not be in its index.
ALTER TABLE entries DROP CONSTRAINT entries_operation_id_key;
CREATE UNIQUE INDEX entries_by_operation ON entries (operation_id) WHERE operation_id IS NOT NULL;
