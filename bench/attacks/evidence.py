"""What shows that an attack really happens: each counts what the server's answers show of it, in memory that all processes of a run have."""

import multiprocessing

# Without a lock: an attacker is killed at any moment, and one that died with it would have everybody wait for ever. Of two who count at
# once, one may not be seen.
_SEEN = multiprocessing.get_context("fork").RawValue("Q", 0)


def noted(count=1):
    """The server has done so often what the attack is about."""
    _SEEN.value += count


def seen():
    """How often that was, since the run began."""
    return _SEEN.value
