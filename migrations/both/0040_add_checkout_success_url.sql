-- The page to which the payment processor leads after a payment: a checkout page with another one is replaced. Null for
-- checkout pages of older versions.
ALTER TABLE payment_checkouts ADD COLUMN success_url TEXT;
