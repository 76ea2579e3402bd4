-- The source of the admin role: `group` if a group of the issuer granted it at sign-in; null if an operator did.
ALTER TABLE users ADD COLUMN admin_granted_by TEXT;
-- The source of the membership: `group` if a group of the issuer granted it at sign-in; null if a member or an operator did.
ALTER TABLE members ADD COLUMN granted_by TEXT;
