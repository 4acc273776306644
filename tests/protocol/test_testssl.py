"""testssl.sh against the server: no finding above LOW.

Left aside are findings about the tests' own certificate, and the hint at HTTP compression (BREACH), which is for
applications to avoid. In CI the parts that take longest are left out; `--whole` runs all of it.
"""

import time
import unittest

from secured import TLS, serve
from testssl import WHOLE, above_low, findings

#: Protocols, cipher categories, forward secrecy, server preferences, server defaults, headers, and vulnerabilities.
#: Left out of CI: every cipher one by one, and the simulated clients.
PARTS = () if WHOLE else ("-p", "-s", "-f", "-P", "-S", "-h", "-U")
#: Findings that must be among them, so that a run that was cut short does not pass.
LANDMARKS = ("TLS1", "TLS1_1", "TLS1_2", "TLS1_3", "cipher_order", "HSTS_time", "heartbleed", "ROBOT", "LUCKY13", "RC4")


@unittest.skipUnless(TLS, "this build has no TLS")
class TestSsl(unittest.TestCase):
    def test_no_finding_above_low(self):
        with serve() as server:
            began = time.monotonic()
            found = findings(server.tls_port, server.folder, *PARTS, seconds=1800 if WHOLE else 250)
            print(f"[testssl.sh: {len(found)} findings, {time.monotonic() - began:.0f} s] ", end="", flush=True)
        names = {finding["id"] for finding in found}
        self.assertEqual([name for name in LANDMARKS if name not in names], [], "testssl.sh did not get to the end")
        above = above_low(found)
        self.assertEqual(above, [], "\n  ".join(["", *above]))


if __name__ == "__main__":
    unittest.main()
