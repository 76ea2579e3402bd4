-- What a component said of itself where it was installed, as JSON: every node compares. Null of those that were installed
-- before this was kept.
ALTER TABLE plugins ADD COLUMN description TEXT;
