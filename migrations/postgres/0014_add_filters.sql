-- Plugins of a third kind, by the constraint on what they are.
ALTER TABLE plugins DROP CONSTRAINT plugins_kind_check;
ALTER TABLE plugins ADD CONSTRAINT plugins_kind_check CHECK (kind IN ('adapter', 'tool', 'filter'));
