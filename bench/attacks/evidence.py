"""What shows that an attack really happens: each counts what the server's answers show of it, in memory that all processes of a run have."""

import multiprocessing

_SEEN = multiprocessing.get_context("fork").Value("Q", 0)


def noted(count=1):
    """The server has done so often what the attack is about."""
    with _SEEN.get_lock():
        _SEEN.value += count


def seen():
    """How often that was, since the run began."""
    return _SEEN.value
