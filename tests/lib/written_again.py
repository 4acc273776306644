"""Files that get other bytes, and keep what tools look at."""

import os


def write_again(path, content):
    """Writes other bytes; size, inode and time stay what they were."""
    before = path.stat()
    with open(path, "r+b") as file:
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (before.st_size, before.st_ino, before.st_mtime_ns) == (after.st_size, after.st_ino, after.st_mtime_ns)


def alike(*contents):
    """The same with blank lines behind, so that all are of one length."""
    longest = max(map(len, contents))
    return [content + b"\n" * (longest - len(content)) for content in contents]
