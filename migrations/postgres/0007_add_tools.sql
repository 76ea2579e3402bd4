-- Components may be tools, too. All that a slot has are of one kind.
ALTER TABLE plugins DROP CONSTRAINT plugins_kind_check;
ALTER TABLE plugins ADD CONSTRAINT plugins_kind_check CHECK (kind IN ('adapter', 'tool'));
