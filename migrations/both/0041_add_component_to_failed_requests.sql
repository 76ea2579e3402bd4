-- The component of the last attempt. Null without an attempt, and in rows of older versions.
ALTER TABLE failed_requests ADD COLUMN adapter_digest TEXT;
