"""The other side of what a service manager and a service have to say to each other, without a service manager."""

import fcntl
import os
import socket

from client import until
from reloading import Reloading


class Notified:
    """A socket to which a server reports, with everything that has come there."""

    def __init__(self, path=None):
        """At `path`, which everybody may write to, or at an abstract name."""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path) if path else "")
        if path:
            os.chmod(path, 0o777)
        name = self.socket.getsockname()
        self.name = f"@{name[1:].decode()}" if isinstance(name, bytes) else name
        self.socket.setblocking(False)
        self.messages = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def read(self):
        """All messages so far, each as its lines by name."""
        while True:
            try:
                text = self.socket.recv(4096).decode()
            except BlockingIOError:
                return self.messages
            self.messages.append(dict(line.split("=", 1) for line in text.split("\n")))

    def after(self, count, name, seconds=15):
        """The first message with this name that came after so many; `None` if none comes."""
        found = lambda: [message for message in self.read()[count:] if name in message]
        return found()[0] if until(lambda: bool(found()), seconds) else None

    def states(self):
        """What the messages say about the state of the server, in their order."""
        return [name for message in self.read() for name in message if name in ("READY", "RELOADING", "STOPPING")]


def listening(address="127.0.0.1", port=0, family=socket.AF_INET, both=False):
    """A listening socket as a service manager makes it, which blocks, and takes IPv4 on an address of IPv6 if asked to."""
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not both))
    made.bind((address, port))
    made.listen(128)
    return made


class Managed(Reloading):
    """A server with the environment, and the sockets, that a service manager gives to it."""

    def given(self, sockets=(), names="", pid="$$", **environment):
        """Has the next start have these sockets, from descriptor 3 on, and these variables."""
        # Above the numbers at which they are wanted: none of them takes the place of another.
        numbers = [fcntl.fcntl(one, fcntl.F_DUPFD, 50) for one in sockets]
        self.close_given()
        self.pass_fds = numbers
        moves = " ".join(f"{3 + at}<&{number} {number}<&-" for at, number in enumerate(numbers))
        listen = f"LISTEN_FDS={len(numbers)} LISTEN_FDNAMES={names} LISTEN_PID={pid}" if numbers else ""
        words = " ".join(f"{name}='{value}'" for name, value in environment.items())
        self.prefix = ["bash", "-c", f'exec {moves}; {listen} {words} exec "$@"' if numbers else f'{words} exec "$@"', "bash"]
        return self

    def refusal(self):
        """What a start says that is refused."""
        try:
            self.start()
        except AssertionError:
            return self.stderr()
        finally:
            self.close_given()
            self._end(failed=False)
        raise AssertionError("the server was started")

    def close_given(self):
        """Closes the descriptors that the next start would have."""
        for number in self.pass_fds:
            os.close(number)
        self.pass_fds = ()

    def __exit__(self, *about):
        self.close_given()
        super().__exit__(*about)
