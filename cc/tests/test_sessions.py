"""What the tests start ends with them: by `stop`, and where they are killed."""

import subprocess
import sys
import unittest

import sessions
from cc_world import HERE, until

# One in the session, one in a session of its own below it; neither heeds a request to end.
COMMAND = ["sh", "-c", "trap '' TERM; sleep 60 & setsid sh -c 'sleep 60; true' & while :; do wait; done"]


class Sessions(unittest.TestCase):
    def whole(self, leader):
        self.assertTrue(until(lambda: len(sessions.members(leader)) == 4), sessions.members(leader))
        return sessions.members(leader)

    def assert_ended(self, members):
        self.assertTrue(until(lambda: not [pid for pid in members if sessions.members(pid)]), members)

    def test_stop(self):
        process = sessions.start(COMMAND)
        members = self.whole(process.pid)
        sessions.end_session(process.pid)
        sessions.stop(process)
        self.assert_ended(members)

    def test_tests_that_are_killed(self):
        script = f"import sessions, time\nprint(sessions.start({COMMAND!r}).pid, flush=True)\ntime.sleep(60)\n"
        with subprocess.Popen([sys.executable, "-c", script], cwd=HERE, stdout=subprocess.PIPE) as tests:
            leader = int(tests.stdout.readline())
            members = self.whole(leader)
            tests.kill()
        self.assert_ended(members)


if __name__ == "__main__":
    unittest.main()
