-- Plugins of a third kind, by the constraint on what they are.
CREATE TABLE plugins_of_kinds (
    slot          TEXT   NOT NULL,
    -- The SHA-256 of the bytes, in hexadecimal digits.
    digest        TEXT   NOT NULL CHECK (length(digest) = 64),
    kind          TEXT   NOT NULL CHECK (kind IN ('adapter', 'tool', 'filter')),
    -- What it says of itself.
    name          TEXT   NOT NULL,
    version       TEXT   NOT NULL,
    -- The contract that it was built for.
    wit_version   TEXT   NOT NULL,
    -- Whose signature it carries; null where it carries none.
    signer        TEXT,
    size_bytes    BIGINT NOT NULL CHECK (size_bytes > 0),
    installed_at  BIGINT NOT NULL,
    installed_by  TEXT   NOT NULL,
    -- What it said of itself where it was installed, as JSON: every node compares.
    description   TEXT   NOT NULL,
    -- What the signer of `signer` signed, as JSON: every node checks it again. Null where there is none.
    signature     TEXT,
    PRIMARY KEY (slot, digest)
);

INSERT INTO plugins_of_kinds
SELECT slot, digest, kind, name, version, wit_version, signer, size_bytes, installed_at, installed_by, description,
    signature
FROM plugins;

DROP TABLE plugins;

ALTER TABLE plugins_of_kinds RENAME TO plugins;
