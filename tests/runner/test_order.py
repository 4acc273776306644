"""In which order tests begin, and when a load ends."""

import time
import types
import unittest
import unittest.mock

import durations
import hooks
from client import Load
from harness import Server


def item(name, alone=False):
    """A test, as far as its place in the order depends on it."""
    marker = lambda asked: "there" if alone and asked == "alone" else None
    return types.SimpleNamespace(nodeid=f"tests/x/{name}", get_closest_marker=marker)


class Order(unittest.TestCase):
    def test_the_longest_begin_and_those_that_run_alone_come_last(self):
        items = [item("test_a.py::A::test_a"), item("test_b.py::B::test_alone", alone=True),
                 item("test_c.py::C::test_c"), item("test_d.py::D::test_d")]
        known = {"test_c.C": 40, "test_d.D": 80, "test_b.B": 100, "rootless: test_a.A": 50}
        with unittest.mock.patch.object(durations, "known", lambda: known):
            names = lambda prefix: [one.nodeid[-1] for one in hooks.in_order(items, prefix)]
            self.assertEqual((names(""), names("rootless: ")), (["d", "c", "a", "e"], ["a", "c", "d", "e"]))

    def test_classes_that_take_long_are_noted(self):
        self.assertEqual(list(durations.long_ones({"a": 9.9, "b": 10, "c": 11})), ["c", "b"])


class Ends(unittest.TestCase):
    def test_a_load_ends_before_its_time_and_is_counted(self):
        with Server() as server:
            load, began = Load(server.port, seconds=30, connections=2), time.monotonic()
            load.end().assert_clean(self)
            self.assertLess(time.monotonic() - began, 15)
            lost = Load(server.port, seconds=30, connections=2)
            server.stop()
            with self.assertRaises(AssertionError):
                lost.end().assert_clean(self)
