"""Every channel of a running server is one of `wire::CHANNELS`, and takes descriptors where that says so, and nowhere else."""

import ctypes
import os
import sys
import unittest

import older_kernel
from client import until
from every_role import FILTERS, every_role
from harness import rootless_too
from topology import LAUNCHER, Topology, peers, said_by_pipe, table

#: Edges whose channels are there for a moment: a request's, an order's.
PASSING = {("admin", "service"), ("service", "admin")}


def can_look():
    """Whether the kernel tells this process which sockets belong together, and gives it others' descriptors."""
    return os.geteuid() == 0 and bool(peers())


@rootless_too
@unittest.skipUnless(can_look(), "only root may look into other processes, and only where the kernel has unix_diag")
class OfOne(unittest.TestCase):
    """A server with a process of every role."""

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(every_role(cls))

    def look(self):
        return Topology.of(self.server, FILTERS)

    def test_every_channel_is_in_the_table(self):
        wrong = {str(channel) for channel in self.look().channels if not {channel.edge, channel.edge[::-1]} & set(table())}
        self.assertEqual(wrong, set())

    def test_no_end_takes_descriptors_but_where_the_table_says_so(self):
        edges = table()
        wrong = {str(channel) for channel in self.look().channels if channel.takes and not edges.get(channel.edge, False)}
        self.assertEqual(wrong, set())

    def test_descriptors_pass_wherever_the_table_says_so(self):
        """On one of the channels of an edge: a chain of filters is passed through in one direction."""
        takes = {channel.edge for channel in self.look().channels if channel.takes}
        self.assertEqual({edge for edge, carries in table().items() if carries} - takes, set())

    def test_every_edge_of_the_table_is_there(self):
        """So that the tests above have looked at each."""
        missing = lambda: set(table()) - {channel.edge for channel in self.look().channels} - PASSING
        self.assertTrue(until(lambda: not missing(), 5), missing())


@unittest.skipUnless(can_look(), "only root may look into other processes, and only where the kernel has unix_diag")
class OnOlderKernels(unittest.TestCase):
    """Where no socket refuses descriptors, nothing but the way to the launcher is closed to them."""

    def test_a_process_speaks_to_the_launcher_by_a_pipe_of_packets_alone(self):
        server = every_role(type(self))
        server.prefix = [sys.executable, older_kernel.__file__]
        with server:
            topology = Topology.of(server, FILTERS)
            to_launcher = {sender: takes for (sender, receiver), takes in table().items() if receiver == LAUNCHER}
            self.assertEqual(set(to_launcher.values()), {False})
            children = [process for process, role in topology.processes.items() if role in to_launcher]
            self.assertEqual([process for process in children if not said_by_pipe(process)], [])
            self.assertEqual([str(one) for one in topology.channels if one.edge[1] == LAUNCHER and one.takes], [])
            # The tests above would see an end that was left open.
            self.assertTrue(all(one.takes for one in topology.between("site", "signer")))


if __name__ == "__main__":
    unittest.main()
