"""An independent client of SCIM 2.0 checks weir against the standard, and provisions as directories do."""

import sys

import httpx2
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_tester import Status, check_server

url, token = sys.argv[1:]
headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/scim+json"}
http = httpx2.Client(base_url=url, headers=headers, timeout=60)
results = check_server(SyncSCIMClient(http))
wrong = [result for result in results if result.status not in (Status.SUCCESS, Status.SKIPPED)]
for result in wrong:
    print(f"{result.resource_type}: {result.title}: {result.reason} {result.data}")
assert not wrong, f"{len(wrong)} of {len(results)} checks failed"
succeeded = sum(result.status == Status.SUCCESS for result in results)
assert succeeded > 60, f"only {succeeded} checks of {len(results)}: {[r.title for r in results]}"
print(succeeded, "checks")
print("all as expected")
