-- What the signer of `plugins.signer` signed, as JSON: every node checks it again. Null where there is none.
ALTER TABLE plugins ADD COLUMN signature TEXT;

-- Whose signature the last component carried that was activated here and is not the binary's own: another's needs a word
-- more to be put in its place. Null where that carried none.
ALTER TABLE slots ADD COLUMN publisher TEXT;

-- The highest version that each publisher's signatures have named for a slot, also of components that were removed: an
-- older one may be a replay. Outlives the slot.
CREATE TABLE plugin_versions (
    slot       TEXT NOT NULL,
    publisher  TEXT NOT NULL,
    version    TEXT NOT NULL,
    PRIMARY KEY (slot, publisher)
);
