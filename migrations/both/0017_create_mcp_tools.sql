-- What each tool of another MCP server was when it was first seen, or last approved, and what its server has said instead since.
CREATE TABLE mcp_tools (
    server             TEXT   NOT NULL,
    tool               TEXT   NOT NULL,
    -- Of the definition, SHA-256 in hexadecimal.
    digest             TEXT   NOT NULL,
    definition         TEXT   NOT NULL,
    pinned_at          BIGINT NOT NULL,
    -- Null while it is the same; else the tool is disabled.
    changed_digest     TEXT,
    changed_definition TEXT,
    changed_at         BIGINT,
    PRIMARY KEY (server, tool)
);
