"""The payment processor's own library: what it signs, weir takes, and what weir signs, it takes."""

import json
import sys
import time
import urllib.error
import urllib.request

import stripe

url, secret, body, header = sys.argv[1:]


def send(payload, signature):
    """The status of weir's answer, and its body."""
    headers = {"Content-Type": "application/json", "Payment-Signature": signature}
    request = urllib.request.Request(url, payload.encode(), headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


sign = stripe.WebhookSignature.generate_signature_header
assert send(body, sign(body, secret)) == (200, {"received": True})
for wrong in [
    sign(body, secret + "x"),
    sign(body + " ", secret),
    sign(body, secret, timestamp=int(time.time()) - 400),
]:
    status, answer = send(body, wrong)
    assert (status, answer["error"]["code"]) == (400, "INVALID_SIGNATURE"), answer

event = stripe.Webhook.construct_event(body, header, secret)
assert event["id"] == json.loads(body)["id"], event
for payload, key in [(body + " ", secret), (body, secret + "x")]:
    try:
        stripe.Webhook.construct_event(payload, header, key)
    except stripe.SignatureVerificationError:
        continue
    raise AssertionError("a signature that is wrong was taken")
print("all as expected")
