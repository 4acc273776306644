"""testssl.sh against the server: no finding above LOW.

Left aside are findings about the tests' own certificate, and the hint at HTTP compression (BREACH), which issue 5
excepts. In CI the parts that take longest are left out; `--whole` runs all of it.
"""

import json
import os
import shutil
import time
import unittest
from pathlib import Path

from secured import TLS, certificates, run, serve

WHOLE = bool(os.environ.get("BULKHEAD_PROTOCOL_WHOLE"))
#: Protocols, cipher categories, forward secrecy, server preferences, server defaults, headers, and vulnerabilities.
#: Left out of CI: every cipher one by one, and the simulated clients.
PARTS = () if WHOLE else ("-p", "-s", "-f", "-P", "-S", "-h", "-U")
HARMLESS = ("OK", "INFO", "LOW", "DEBUG")
#: The hint at compression; and a check that testssl.sh 3.0 often cannot make with OpenSSL 3 (WARN: no finding, but that
#: there is none), against nginx as well: resumption is test_openssl's.
EXCEPTED = (("MEDIUM", "BREACH"), ("WARN", "sessionresumption_ticket"))
#: Findings that must be among them, so that a run that was cut short does not pass.
LANDMARKS = ("TLS1", "TLS1_1", "TLS1_2", "TLS1_3", "cipher_order", "HSTS_time", "heartbleed", "ROBOT", "LUCKY13", "RC4")


def findings(port, folder, *parts, seconds=250):
    """What testssl.sh finds, as a list of its findings."""
    report = Path(folder) / "testssl.json"
    report.unlink(missing_ok=True)
    program = shutil.which("testssl") or shutil.which("testssl.sh") or "testssl"
    command = (
        program, "--quiet", "--color", "0", "--warnings", "off", "--nodns", "none", "--ip", "127.0.0.1", "--add-ca",
        certificates() / "ca.pem", "--jsonfile", report, *parts, f"main.test:{port}",
    )
    said = run(*command, seconds=seconds).stdout
    if not report.exists():
        raise AssertionError(f"testssl.sh made no report:\n{said[-3000:]}")
    return json.loads(report.read_text())


def about_the_certificate(finding):
    """Whether it is of the certificate, which is one of the tests' own."""
    return finding["id"].startswith(("cert_", "OCSP_", "DNS_CAArecord", "certificate_transparency", "intermediate_cert"))


def above_low(found):
    """The findings that count."""
    return [
        f"{finding['severity']} {finding['id']}: {finding['finding']}"
        for finding in found
        if finding["severity"] not in HARMLESS
        and (finding["severity"], finding["id"]) not in EXCEPTED
        and not about_the_certificate(finding)
    ]


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
