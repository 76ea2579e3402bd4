-- The invoice and the subscription of a plan's payment: credit notes name no payment.
ALTER TABLE payments ADD COLUMN invoice_id TEXT;
ALTER TABLE payments ADD COLUMN subscription_id TEXT;

-- The micro-credits that were taken back, or are owed, for the refunded cents. Of earlier refunds of plans it is not known,
-- because nothing was taken back after the end of a period.
ALTER TABLE payments ADD COLUMN taken BIGINT NOT NULL DEFAULT 0;
UPDATE payments SET taken = credits * refunded / amount WHERE kind <> 'plan' AND refunded > 0 AND amount > 0;

-- How often credits were given back, after a failed refund or a won dispute.
ALTER TABLE payments ADD COLUMN returns BIGINT NOT NULL DEFAULT 0;

CREATE INDEX payments_by_invoice ON payments (invoice_id) WHERE invoice_id IS NOT NULL;
