-- Codes that operators give away; whoever redeems one gets top-up credits.
CREATE TABLE vouchers (
    id          TEXT   NOT NULL PRIMARY KEY,
    -- HMAC-SHA256 of the code under an API key pepper. The code itself is stored nowhere.
    code_hash   {bytes}   NOT NULL UNIQUE CHECK (length(code_hash) = 32),
    name        TEXT   NOT NULL,
    -- Micro-credits for each account that redeems it.
    credits     BIGINT NOT NULL CHECK (credits > 0),
    -- How many accounts may redeem it, and how many have.
    uses        BIGINT NOT NULL CHECK (uses > 0),
    redeemed    BIGINT NOT NULL DEFAULT 0 CHECK (redeemed BETWEEN 0 AND uses),
    created_at  BIGINT NOT NULL,
    created_by  TEXT   NOT NULL,
    expires_at  BIGINT NOT NULL,
    revoked_at  BIGINT
);

-- One row for each account and voucher: written with the count of the voucher, before the ledger is asked.
CREATE TABLE voucher_redemptions (
    user_id      TEXT   NOT NULL REFERENCES users (id),
    voucher_id   TEXT   NOT NULL REFERENCES vouchers (id),
    credits      BIGINT NOT NULL,
    redeemed_at  BIGINT NOT NULL,
    -- Null until the ledger has the credits.
    applied_at   BIGINT,
    PRIMARY KEY (user_id, voucher_id)
);

CREATE INDEX voucher_redemptions_open ON voucher_redemptions (redeemed_at) WHERE applied_at IS NULL;

-- Unknown codes that a user has sent since the beginning of a window.
CREATE TABLE voucher_guesses (
    user_id  TEXT   NOT NULL PRIMARY KEY REFERENCES users (id),
    since    BIGINT NOT NULL,
    guesses  BIGINT NOT NULL
);

-- For exports: entries that are not a request's, payments and refunds, by time.
CREATE INDEX entries_by_change ON entries (at) WHERE hold_id IS NULL;
CREATE INDEX entries_by_account_change ON entries (account_id, at) WHERE hold_id IS NULL;
CREATE INDEX payments_by_time ON payments (paid_at);
CREATE INDEX payment_events_by_refund ON payment_events (created_at)
    WHERE type IN ('charge.refunded', 'charge.dispute.funds_withdrawn');
