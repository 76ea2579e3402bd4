-- The components that operators have installed, by the slot that each is for.
CREATE TABLE plugins (
    slot          TEXT   NOT NULL,
    -- The SHA-256 of the bytes, in hexadecimal digits.
    digest        TEXT   NOT NULL CHECK (length(digest) = 64),
    kind          TEXT   NOT NULL CHECK (kind IN ('adapter')),
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
    PRIMARY KEY (slot, digest)
);

-- Their bytes, written before the row above in transactions of their own: one that wrote megabytes would keep all
-- others waiting. Parts of an installation that did not end are made use of by the next one.
CREATE TABLE plugin_parts (
    slot    TEXT   NOT NULL,
    digest  TEXT   NOT NULL,
    part    BIGINT NOT NULL CHECK (part >= 0),
    bytes   {bytes_5}  NOT NULL,
    PRIMARY KEY (slot, digest, part)
);

-- What each slot serves with. A slot that the binary fills and nobody has changed has no row.
CREATE TABLE slots (
    slot             TEXT   NOT NULL PRIMARY KEY,
    -- Null where it is what the binary brings, or nothing.
    active_digest    TEXT,
    -- What was active before, to go back to.
    previous_digest  TEXT,
    changed_at       BIGINT NOT NULL
);

-- Code that has trapped too often in a slot: not gone back to, unless an operator activates it again.
CREATE TABLE plugin_quarantines (
    slot    TEXT   NOT NULL,
    digest  TEXT   NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (slot, digest)
);

CREATE TABLE plugin_events (
    number           BIGINT NOT NULL PRIMARY KEY,
    at               BIGINT NOT NULL,
    slot             TEXT   NOT NULL,
    kind             TEXT   NOT NULL
        CHECK (kind IN ('installed', 'activated', 'rolled_back', 'removed', 'quarantined', 'quarantine_withheld')),
    -- What it was about, and what served before.
    digest           TEXT,
    previous_digest  TEXT,
    -- Who did it: user:ID, service:E-MAIL, or weir itself.
    actor            TEXT   NOT NULL,
    detail           TEXT
);

CREATE INDEX plugin_events_by_slot ON plugin_events (slot, number);

-- What each component has done, by slot, as its nodes report every few seconds. The ledger's entries have
-- the exact charges.
CREATE TABLE plugin_counters (
    slot        TEXT   NOT NULL,
    digest      TEXT   NOT NULL,
    requests    BIGINT NOT NULL,
    errors      BIGINT NOT NULL,
    traps       BIGINT NOT NULL,
    -- The sum over all requests, in microseconds.
    latency_us  BIGINT NOT NULL,
    -- In micro-credits.
    credits     BIGINT NOT NULL,
    -- Answers whose reported usage was not believed.
    clamps      BIGINT NOT NULL,
    PRIMARY KEY (slot, digest)
);

-- One row, whose number each change of the tables above but the counters raises: nodes look at it to
-- see whether anything has changed, and whoever changes something locks it.
CREATE TABLE plugin_generation (
    number  BIGINT NOT NULL
);

INSERT INTO plugin_generation (number) VALUES (0);
