"""What weir asks a processor of payments, asked through Stripe's own client: the test compares the calls."""

import sys

import stripe

base_url, secret_key, version, portal_key = sys.argv[1:]
client = stripe.StripeClient(
    secret_key,
    stripe_version=version,
    base_addresses={"api": base_url},
    max_network_retries=0,
)


def under(key):
    return {"idempotency_key": key}


customer = client.v1.customers.create(
    params={"metadata": {"user_id": "usr_1"}}, options=under("customer-usr_1")
)
assert customer.id == "cus_1", customer


def order(mode, data, line, metadata, **more):
    return {
        "mode": mode,
        "customer": customer.id,
        "client_reference_id": "usr_1",
        "success_url": "https://app.example/paid?a=1&b=ż",
        "cancel_url": "https://app.example/left",
        "expires_at": 1800000000,
        "line_items": [{"quantity": 1, **line}],
        "metadata": metadata,
        data: {"metadata": metadata, **more},
    }


plan = client.v1.checkout.sessions.create(
    params=order(
        "subscription",
        "subscription_data",
        {
            "price_data": {
                "currency": "usd",
                "unit_amount": 5000,
                "product_data": {"name": "Pro plan"},
                "recurring": {"interval": "month"},
            }
        },
        {"user_id": "usr_1", "purpose": "plan", "plan": "pro"},
    ),
    options=under("key-plan"),
)
assert plan.status == "open" and plan.url.startswith("https://"), plan
client.v1.checkout.sessions.create(
    params=order(
        "payment",
        "payment_intent_data",
        {"price": "price_small"},
        {"user_id": "usr_1", "purpose": "topup", "tier": "small"},
        setup_future_usage="off_session",
    ),
    options=under("key-topup"),
)
assert client.v1.checkout.sessions.retrieve(plan.id).status == "open"
expired = client.v1.checkout.sessions.expire(
    plan.id, options=under("expire-" + plan.id)
)
assert expired.status == "expired", expired
portal = client.v1.billing_portal.sessions.create(
    params={"customer": customer.id, "return_url": "https://app.example/account"},
    options=under(portal_key),
)
assert portal.url.startswith("https://"), portal

settings = client.v1.customers.retrieve(customer.id).invoice_settings
assert settings.default_payment_method is None, settings
cards = client.v1.payment_methods.list(
    params={"customer": customer.id, "type": "card", "limit": 1}
)
intent = client.v1.payment_intents.create(
    params={
        "amount": 2500,
        "currency": "usd",
        "customer": customer.id,
        "payment_method": cards.data[0].id,
        "off_session": True,
        "confirm": True,
        "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
        "description": "27,500 credits",
        "metadata": {
            "purpose": "auto_topup",
            "tier": "medium",
            "user_id": "usr_1",
            "charge_id": "charge-1",
        },
    },
    options=under("charge-1"),
)
assert intent.status == "succeeded", intent
found = client.v1.payment_intents.list(
    params={"customer": customer.id, "created": {"gte": 1700000000}, "limit": 100}
)
assert found.data[0].metadata["charge_id"] == "charge-1", found

print("all as expected")
