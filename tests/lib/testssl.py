"""testssl.sh, and which of its findings count."""

import json
import os
import shutil
from pathlib import Path

from secured import certificates, run

WHOLE = bool(os.environ.get("BULKHEAD_PROTOCOL_WHOLE"))
HARMLESS = ("OK", "INFO", "LOW", "DEBUG")
#: The hint at compression; and a check that testssl.sh 3.0 often cannot make with OpenSSL 3 (WARN: no finding, but that
#: there is none), against nginx as well: resumption is test_openssl's.
EXCEPTED = (("MEDIUM", "BREACH"), ("WARN", "sessionresumption_ticket"))


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
