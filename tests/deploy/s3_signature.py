"""Signs a recorded request to S3 with botocore, and compares the headers. Usage: s3_signature.py FILE, with a JSON object of
`method`, `url`, `headers`, `body`, `key_id`, `secret`, `region`"""

import datetime
import json
import pathlib
import sys

from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

recorded = json.loads(pathlib.Path(sys.argv[1]).read_text())
headers = {name.lower(): value for name, value in recorded["headers"]}
at = datetime.datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
age = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None) - at
assert abs(age) < datetime.timedelta(minutes=5), age
auth.get_current_datetime = lambda remove_tzinfo=True: at
request = AWSRequest(
    recorded["method"],
    recorded["url"],
    headers={"content-type": headers["content-type"]},
    data=recorded["body"].encode(),
)
credentials = Credentials(recorded["key_id"], recorded["secret"])
auth.S3SigV4Auth(credentials, "s3", recorded["region"]).add_auth(request)
for name in ("Authorization", "X-Amz-Content-SHA256", "X-Amz-Date"):
    assert headers[name.lower()] == request.headers[name], (name, headers, dict(request.headers))
print("all as expected")
