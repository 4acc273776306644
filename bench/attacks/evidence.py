"""What shows that an attack really happens: each counts what the server's answers show of it, in memory that all processes of a run have."""

import multiprocessing

# There is no lock: an attacker is killed at any moment, and if it held one, the run would wait for ever. A count may be
# lost when two processes count at once.
_SEEN = multiprocessing.get_context("fork").RawValue("Q", 0)


def noted(count=1):
    """The server has done so often what the attack is about."""
    _SEEN.value += count


def seen():
    """How often that was, since the run began."""
    return _SEEN.value
