// The calls of weir to a payment processor, made by Stripe's own client. The test compares both.
import assert from "node:assert";

import Stripe from "stripe";

const [baseUrl, secretKey, version, portalKey] = process.argv.slice(2);
const { hostname, port } = new URL(baseUrl);
const client = new Stripe(secretKey, {
  apiVersion: version,
  host: hostname,
  port,
  protocol: "http",
  maxNetworkRetries: 0,
  telemetry: false,
});
const under = (idempotencyKey) => ({ idempotencyKey });

const customer = await client.customers.create(
  { metadata: { user_id: "usr_1" } },
  under("customer-usr_1"),
);
assert.equal(customer.id, "cus_1");

const order = (mode, data, line, metadata, more) => ({
  mode,
  customer: customer.id,
  client_reference_id: "usr_1",
  success_url: "https://app.example/paid?a=1&b=ż",
  cancel_url: "https://app.example/left",
  expires_at: 1800000000,
  line_items: [{ quantity: 1, ...line }],
  metadata,
  [data]: { metadata, ...more },
});

const plan = await client.checkout.sessions.create(
  order(
    "subscription",
    "subscription_data",
    {
      price_data: {
        currency: "usd",
        unit_amount: 5000,
        product_data: { name: "Pro plan" },
        recurring: { interval: "month" },
      },
    },
    { user_id: "usr_1", purpose: "plan", plan: "pro" },
    {},
  ),
  under("key-plan"),
);
assert.equal(plan.status, "open");
await client.checkout.sessions.create(
  order(
    "payment",
    "payment_intent_data",
    { price: "price_small" },
    { user_id: "usr_1", purpose: "topup", tier: "small" },
    { setup_future_usage: "off_session" },
  ),
  under("key-topup"),
);
assert.equal((await client.checkout.sessions.retrieve(plan.id)).status, "open");
const expired = await client.checkout.sessions.expire(plan.id, {}, under(`expire-${plan.id}`));
assert.equal(expired.status, "expired");
await client.billingPortal.sessions.create(
  { customer: customer.id, return_url: "https://app.example/account" },
  under(portalKey),
);

const { invoice_settings: settings } = await client.customers.retrieve(customer.id);
assert.equal(settings.default_payment_method, null);
const cards = await client.paymentMethods.list({ customer: customer.id, type: "card", limit: 1 });
const intent = await client.paymentIntents.create(
  {
    amount: 2500,
    currency: "usd",
    customer: customer.id,
    payment_method: cards.data[0].id,
    off_session: true,
    confirm: true,
    automatic_payment_methods: { enabled: true, allow_redirects: "never" },
    description: "27,500 credits",
    metadata: {
      purpose: "auto_topup",
      tier: "medium",
      user_id: "usr_1",
      charge_id: "charge-1",
    },
  },
  under("charge-1"),
);
assert.equal(intent.status, "succeeded");
const found = await client.paymentIntents.list({
  customer: customer.id,
  created: { gte: 1700000000 },
  limit: 100,
});
assert.equal(found.data[0].metadata.charge_id, "charge-1");

console.log("all as expected");
