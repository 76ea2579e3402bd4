-- Changes of the catalog by administrators, over the configuration. The newest version is active; no version is changed.
CREATE TABLE catalog_layers (
    -- From 1, without gaps.
    version     BIGINT NOT NULL PRIMARY KEY,
    -- The layer, as a JSON object.
    contents    TEXT   NOT NULL,
    created_at  BIGINT NOT NULL,
    created_by  TEXT   NOT NULL,
    summary     TEXT   NOT NULL,
    -- The differences to the catalog at that time, as a JSON object.
    changes     TEXT   NOT NULL
);
