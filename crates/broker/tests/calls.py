"""Raw calls of a program whose `socket` and `connect` are answered by a broker; one line each: a name and a result.

Runs in: a child of `cargo test`. usage: calls.py PORT CLOSED-PORT FORBIDDEN-PORT PORT-OF-IPV6 PORT-OF-UDP
"""
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import sys

PORT, CLOSED, FORBIDDEN, PORT6, UDP = map(int, sys.argv[1:])
LIBC = ctypes.CDLL(None, use_errno=True)


def result(number):
    return "ok" if number >= 0 else errno.errorcode[ctypes.get_errno()]


def say(name, outcome):
    print(name, outcome)


def connect(sock, address, length=None):
    """`connect` with these bytes, or at this address."""
    number = sock if isinstance(sock, int) else sock.fileno()
    buffer = address
    if isinstance(address, bytes):
        length = len(address) if length is None else length
        buffer = ctypes.create_string_buffer(address, 256)
    else:
        buffer = ctypes.c_void_p(address)
    return result(LIBC.connect(number, buffer, ctypes.c_int(length)))


def v4(port, host="127.0.0.1"):
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(host) + bytes(8)


def v6(port, host="::1"):
    return (struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", port, 0)
            + socket.inet_pton(socket.AF_INET6, host) + bytes(4))


UNSPECIFIED = bytes(16)


def tcp(family=socket.AF_INET):
    return socket.socket(family, socket.SOCK_STREAM)


def echoed(sock):
    sock.sendall(b"x")
    return "echo" if sock.recv(1) == b"x" else "nothing"


def streams():
    one = tcp()
    say("granted", connect(one, v4(PORT)))
    say("granted-echo", echoed(one))
    say("granted-blocks", not fcntl.fcntl(one, fcntl.F_GETFL) & os.O_NONBLOCK)
    say("again", connect(one, v4(PORT)))
    say("unspecified-tcp", connect(one, UNSPECIFIED))
    say("unspecified-tcp-echo", echoed(one))
    say("closed-port", connect(tcp(), v4(CLOSED)))
    retried = tcp()
    connect(retried, v4(CLOSED))
    say("after-failure", connect(retried, v4(PORT)))
    say("forbidden-port", connect(tcp(), v4(FORBIDDEN)))
    say("forbidden-host", connect(tcp(), v4(PORT, "127.0.0.2")))
    say("this-host", connect(tcp(), v4(PORT, "0.0.0.0")))
    say("long-address", connect(tcp(), v4(PORT) + bytes(100)))
    six = tcp(socket.AF_INET6)
    say("v6", connect(six, v6(PORT6)))
    say("v6-echo", echoed(six))
    say("v6-short", connect(tcp(socket.AF_INET6), v6(PORT6)[:24]))
    say("v6-forbidden", connect(tcp(socket.AF_INET6), v6(FORBIDDEN)))
    say("mapped", connect(tcp(socket.AF_INET6), v6(PORT, "::ffff:127.0.0.1")))
    say("mapped-forbidden", connect(tcp(socket.AF_INET6), v6(FORBIDDEN, "::ffff:127.0.0.1")))
    say("v6-on-v4", connect(tcp(), v6(PORT6)))


def without_waiting():
    sock = tcp()
    sock.setblocking(False)
    began = connect(sock, v4(PORT))
    say("non-blocking", began in ("ok", "EINPROGRESS"))
    select.select([], [sock], [])
    say("non-blocking-result", sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    say("non-blocking-again", connect(sock, v4(PORT)) in ("ok", "EISCONN"))
    say("non-blocking-stays", bool(fcntl.fcntl(sock, fcntl.F_GETFL) & os.O_NONBLOCK))
    say("non-blocking-forbidden", connect(sock, v4(FORBIDDEN)))


def datagrams():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    say("udp", connect(sock, v4(UDP)))
    say("udp-echo", echoed(sock))
    say("udp-unspecified", connect(sock, UNSPECIFIED))
    sock.sendto(b"x", ("127.0.0.1", UDP))
    say("udp-sendto", sock.recvfrom(1)[1] == ("127.0.0.1", UDP))
    say("udp-short-unspecified", connect(sock, bytes(2)))


def nonsense():
    sock = tcp()
    say("null", connect(sock, 0, 16))
    say("bad-pointer", connect(sock, 2**47, 16))
    say("short", connect(sock, v4(PORT), 15))
    say("shorter", connect(sock, v4(PORT), 1))
    say("nothing", connect(sock, v4(PORT), 0))
    say("negative", connect(sock, v4(PORT), -1))
    say("too-long", connect(sock, v4(PORT), 129))
    say("unix-address", connect(sock, struct.pack("=H", socket.AF_UNIX) + b"/x\0"))
    say("closed", connect(1000, v4(PORT)))
    reader, writer = os.pipe()
    say("pipe", connect(reader, v4(PORT)))
    pair, _other = socket.socketpair()
    say("pair", connect(pair, v4(PORT)))
    say("pair-unspecified", connect(pair, UNSPECIFIED))
    path = os.open("/", os.O_PATH)
    say("path", connect(path, v4(PORT)))
    say("unharmed", connect(sock, v4(PORT)))


def kinds():
    def make(name, *arguments):
        number = LIBC.socket(*arguments)
        outcome = result(number)
        if number >= 0:
            flags = bool(fcntl.fcntl(number, fcntl.F_GETFL) & os.O_NONBLOCK)
            outcome += f" nonblock={flags} cloexec={bool(fcntl.fcntl(number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC)}"
            os.close(number)
        say(name, outcome)
    inet, stream, datagram = socket.AF_INET, socket.SOCK_STREAM, socket.SOCK_DGRAM
    make("plain", inet, stream, 0)
    make("both-flags", inet, stream | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, 6)
    make("udp-nonblock", socket.AF_INET6, datagram | socket.SOCK_NONBLOCK, 17)
    make("mptcp", inet, stream, 262)
    make("sctp", inet, stream, 132)
    make("udplite", inet, datagram, 136)
    make("icmp", inet, datagram, 1)
    make("raw", inet, socket.SOCK_RAW, 6)
    make("tcp-datagram", inet, datagram, 6)
    make("odd-flag", inet, stream | 0x1000, 0)
    make("local", socket.AF_UNIX, stream, 0)


streams()
without_waiting()
datagrams()
nonsense()
kinds()
