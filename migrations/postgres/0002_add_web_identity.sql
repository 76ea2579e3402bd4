-- Whom an issuer's tokens name; null for users who have API keys only.
ALTER TABLE users ADD COLUMN issuer TEXT;
ALTER TABLE users ADD COLUMN subject TEXT CHECK ((issuer IS NULL) = (subject IS NULL));
CREATE UNIQUE INDEX users_by_subject ON users (issuer, subject);

ALTER TABLE users ADD COLUMN plan TEXT NOT NULL DEFAULT 'free';
ALTER TABLE users ADD COLUMN admin_since BIGINT;
