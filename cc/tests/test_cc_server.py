"""CCServer: what it serves and refuses, and that nobody waits for a slow client."""

import unittest

from cc_served import Server

class BufferedServer(Server):
    """The same with requests that come in the bundle, as from a filter."""

    guard = {"take": True}
    test_slow_readers_block_nobody = None


if __name__ == "__main__":
    unittest.main()
