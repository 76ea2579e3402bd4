-- The person who created an organisation: one without paid credits shares their limits, and creations count for a day.
ALTER TABLE users ADD COLUMN created_by TEXT REFERENCES users (id);

UPDATE users SET created_by = (
    SELECT m.user_id FROM members m WHERE m.organisation_id = users.id AND m.kind = 'person'
    ORDER BY CASE m.role WHEN 'owner' THEN 0 ELSE 1 END, m.created_at, m.user_id LIMIT 1
)
WHERE kind = 'organisation';

CREATE INDEX users_by_creator ON users (created_by, created_at) WHERE created_by IS NOT NULL;

-- The person who redeemed the voucher, for any account; null for redemptions of organisations by earlier releases.
ALTER TABLE voucher_redemptions ADD COLUMN person_id TEXT REFERENCES users (id);

UPDATE voucher_redemptions SET person_id = user_id
WHERE user_id IN (SELECT id FROM users WHERE kind = 'person');

CREATE UNIQUE INDEX voucher_redemptions_by_person ON voucher_redemptions (voucher_id, person_id)
    WHERE person_id IS NOT NULL;
