-- The lowest version that a slot serves with, by Semantic Versioning; null for any.
ALTER TABLE slots ADD COLUMN least_version TEXT;
-- What becomes of the slot whose component is put into quarantine; null for the default of its kind.
ALTER TABLE slots ADD COLUMN on_quarantine TEXT CHECK (on_quarantine IN ('roll_back', 'refuse'));
