-- A service account only holds keys, so it is a member or a viewer. Earlier releases let an administrator give it any role.
UPDATE members SET role = CASE role WHEN 'billing' THEN 'viewer' ELSE 'member' END
WHERE role IN ('owner', 'admin', 'billing') AND user_id IN (SELECT id FROM users WHERE kind = 'service');

-- The kind of the member, as in `users`: a constraint cannot read another table.
ALTER TABLE members ADD COLUMN kind TEXT NOT NULL DEFAULT 'person'
    CHECK (kind = 'person' OR (kind = 'service' AND role IN ('member', 'viewer')));

UPDATE members SET kind = 'service' WHERE user_id IN (SELECT id FROM users WHERE kind = 'service');

-- An organisation that only a service account owned gets its longest-standing administrator as owner.
UPDATE members SET role = 'owner', granted_by = NULL
WHERE role = 'admin'
    AND NOT EXISTS (
        SELECT 1 FROM members o WHERE o.organisation_id = members.organisation_id AND o.role = 'owner'
    )
    AND user_id = (
        SELECT a.user_id FROM members a JOIN users u ON u.id = a.user_id
        WHERE a.organisation_id = members.organisation_id AND a.role = 'admin'
            AND u.disabled_at IS NULL AND u.deleted_at IS NULL
        ORDER BY a.created_at, a.user_id LIMIT 1
    );
