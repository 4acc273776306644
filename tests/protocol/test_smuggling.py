"""Request smuggling probes against the server itself: as the first and as a later request, in plaintext and over TLS.

The first head of a plaintext connection is read by the gate, a later one by the site's worker; over TLS the worker
reads both. What has a body goes on to a service, over the relay.
"""

import unittest

from secured import TLS, serve
from probing import Probing

class Smuggling(Probing, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(serve(programs=("probe",)))

    def test_the_first_request(self):
        self.try_all(self.plain, later=False)

    def test_a_later_request(self):
        self.try_all(self.plain, later=True)

    @unittest.skipUnless(TLS, "this build has no TLS")
    def test_the_first_request_over_tls(self):
        self.try_all(self.secure, later=False)

    @unittest.skipUnless(TLS, "this build has no TLS")
    def test_a_later_request_over_tls(self):
        self.try_all(self.secure, later=True)


if __name__ == "__main__":
    unittest.main()
