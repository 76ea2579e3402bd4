-- Which customer of the payment processor a user is.
CREATE TABLE payment_customers (
    user_id      TEXT   NOT NULL PRIMARY KEY REFERENCES users (id),
    customer_id  TEXT   NOT NULL UNIQUE,
    linked_at    BIGINT NOT NULL
);

-- Pages on which users were sent to pay. At most one for each purpose is open: who asks again is sent there again.
CREATE TABLE payment_checkouts (
    -- The idempotency key of the call that makes it, too.
    id          TEXT   NOT NULL PRIMARY KEY,
    user_id     TEXT   NOT NULL REFERENCES users (id),
    -- 'plan', or 'topup:' and the tier.
    purpose     TEXT   NOT NULL,
    -- The plan or the tier.
    item        TEXT   NOT NULL,
    -- Null until the processor has answered.
    session_id  TEXT   UNIQUE,
    url         TEXT,
    created_at  BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL,
    -- Since when it is paid, lapsed, or replaced by another one.
    closed_at   BIGINT
);

CREATE UNIQUE INDEX payment_checkouts_open ON payment_checkouts (user_id, purpose) WHERE closed_at IS NULL;

-- What the processor has told, each once, reduced to what weir reads of it: no names, addresses or cards.
CREATE TABLE payment_events (
    id               TEXT   NOT NULL PRIMARY KEY,
    type             TEXT   NOT NULL,
    -- When it happened, by the processor's word, and when it came.
    created_at       BIGINT NOT NULL,
    received_at      BIGINT NOT NULL,
    -- As JSON.
    content          TEXT   NOT NULL,
    -- Null while it is not known whom it is about.
    user_id          TEXT,
    customer_id      TEXT,
    -- The subscription, payment or customer that it is an event of; null of an unknown type.
    subject          TEXT,
    -- 'waiting': to be applied, or until it is known whom it is about; 'failed': to be tried again; 'applied';
    -- 'ignored': nothing of weir's.
    state            TEXT   NOT NULL,
    attempts         BIGINT NOT NULL DEFAULT 0,
    -- When to apply it, or to try again; null when there is nothing more to do.
    next_attempt_at  BIGINT,
    last_error       TEXT,
    -- When there was nothing more to do.
    applied_at       BIGINT,
    -- What it came to, in words: e.g. that it was older than another.
    outcome          TEXT
);

CREATE INDEX payment_events_due ON payment_events (next_attempt_at) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX payment_events_by_user ON payment_events (user_id, created_at);
CREATE INDEX payment_events_by_customer ON payment_events (customer_id) WHERE user_id IS NULL;
CREATE INDEX payment_events_by_subject ON payment_events (subject);
CREATE INDEX payment_events_by_arrival ON payment_events (received_at, id);

-- Whose events are being applied: one at a time for each user, by one node.
CREATE TABLE payment_turns (
    user_id  TEXT   NOT NULL PRIMARY KEY,
    holder   TEXT   NOT NULL,
    until    BIGINT NOT NULL
);

-- Subscriptions as the latest event about each has them.
CREATE TABLE payment_subscriptions (
    id                    TEXT   NOT NULL PRIMARY KEY,
    user_id               TEXT   NOT NULL REFERENCES users (id),
    -- 'guru' or 'pro'.
    plan                  TEXT   NOT NULL,
    -- The processor's word: 'active', 'trialing', 'past_due', 'canceled' …
    status                TEXT   NOT NULL,
    period_start          BIGINT,
    period_end            BIGINT,
    -- Since when it ends with its period.
    cancelled_at          BIGINT,
    -- When a checkout began its first period, before the processor had told its bounds.
    provisional_start     BIGINT,
    -- Since when an invoice of it is not paid.
    payment_failed_at     BIGINT,
    -- The event that said all this, and when that happened.
    as_of                 BIGINT NOT NULL,
    event_id              TEXT   NOT NULL
);

CREATE INDEX payment_subscriptions_by_user ON payment_subscriptions (user_id);

-- What was paid, to know what a refund takes back.
CREATE TABLE payments (
    -- The processor's id of the payment.
    id            TEXT   NOT NULL PRIMARY KEY,
    user_id       TEXT   NOT NULL REFERENCES users (id),
    -- 'plan', 'topup' or 'auto_topup'.
    kind          TEXT   NOT NULL,
    -- What it gave, in micro-credits.
    credits       BIGINT NOT NULL,
    -- In cents.
    amount        BIGINT NOT NULL,
    -- Of a plan: the span that was paid for.
    period_start  BIGINT,
    period_end    BIGINT,
    paid_at       BIGINT NOT NULL,
    -- For how many of the cents the credits were taken back, or are owed.
    refunded      BIGINT NOT NULL DEFAULT 0,
    -- For how many of them that is being done: written down before the ledger is asked.
    refunding     BIGINT
);

CREATE INDEX payments_by_user ON payments (user_id, paid_at);

-- Who wants credits bought when few are left.
CREATE TABLE auto_top_ups (
    user_id         TEXT   NOT NULL PRIMARY KEY REFERENCES users (id),
    -- Null while it is off.
    enabled_at      BIGINT,
    tier            TEXT   NOT NULL,
    -- In micro-credits.
    threshold       BIGINT NOT NULL,
    -- After a charge that failed.
    cooldown_until  BIGINT,
    changed_at      BIGINT NOT NULL
);

-- Charges for them. A row is there before the processor is asked, so that whoever finds it asks again under the same key.
CREATE TABLE auto_top_up_charges (
    -- The idempotency key of the call, too.
    id                 TEXT   NOT NULL PRIMARY KEY,
    user_id            TEXT   NOT NULL REFERENCES users (id),
    tier               TEXT   NOT NULL,
    created_at         BIGINT NOT NULL,
    -- The run of a node that is at it, and until when; from then on, or when the run's lease is over, any other is.
    boot_id            TEXT   NOT NULL,
    claimed_until      BIGINT NOT NULL,
    payment_id         TEXT   UNIQUE,
    attempts           BIGINT NOT NULL,
    -- Null while it is not known what became of it.
    ended_at           BIGINT,
    -- 'succeeded', 'failed' or 'abandoned'.
    outcome            TEXT,
    error              TEXT
);

-- Never two at once.
CREATE UNIQUE INDEX auto_top_up_charges_open ON auto_top_up_charges (user_id) WHERE ended_at IS NULL;
CREATE INDEX auto_top_up_charges_by_user ON auto_top_up_charges (user_id, created_at);
CREATE INDEX auto_top_up_charges_by_claim ON auto_top_up_charges (claimed_until) WHERE ended_at IS NULL;

-- What users are to be told. Each is delivered at least once.
CREATE TABLE notices (
    -- Made of what it is about, so that nothing is told twice.
    id               TEXT   NOT NULL PRIMARY KEY,
    user_id          TEXT   NOT NULL REFERENCES users (id),
    kind             TEXT   NOT NULL,
    -- As JSON.
    data             TEXT   NOT NULL,
    created_at       BIGINT NOT NULL,
    attempts         BIGINT NOT NULL DEFAULT 0,
    -- Null when it is delivered, or given up.
    next_attempt_at  BIGINT,
    delivered_at     BIGINT,
    last_error       TEXT
);

CREATE INDEX notices_due ON notices (next_attempt_at) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX notices_by_user ON notices (user_id, created_at);
