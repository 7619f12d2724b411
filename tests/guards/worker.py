"""A worker as test_mission.py needs it: takes a lock of pawl, and writes with its token through a database's own command line.

    worker.py '{"pawld": ADDRESS, "lock": NAME, "ttl_ms": N, "wait_ms": N, "client": [ARGV], "write": TEXT with @TOKEN@}'

Prints the lease it was granted, as a line of JSON; waits for a line on its input; writes; prints the client's exit status and what it
said, and what pawl answers to the release.
"""

import json
import subprocess
import sys
import uuid

from pawltest.http import Api

job = json.loads(sys.argv[1])
api = Api(job["pawld"], timeout_s=60)
lease_id = str(uuid.uuid4())
status = 503
while status == 503:  # not known, or too late to be of use: the same again
    status, lease = api.acquire(job["lock"], ttl_ms=job["ttl_ms"], wait_ms=job["wait_ms"], lease_id=lease_id)
print(json.dumps({"status": status, **lease}), flush=True)
sys.stdin.readline()
text = job["write"].replace("@TOKEN@", str(lease["token"]))
done = subprocess.run(job["client"], input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
status = 503
while status == 503:
    status, reply = api.release(job["lock"], lease_id=lease_id)
print(json.dumps({"client": done.returncode, "said": done.stdout, "release": status, "error": reply.get("error")}), flush=True)
