"""What an interpreter tries as a filter: the ways out of attack.c that its own library offers, and some by ctypes.

Runs in: the jail of a filter. Sees: requests of the test. Never: uses anything of Bulkhead's.

    python3 attack.py PORT     requests for /python/NAME make the attempt NAME, /python/report tells of all
    python3 attack.py list     the attempts, one a line
"""

import ctypes
import errno
import mmap
import os
import signal
import socket
import struct
import sys

HEAD = struct.Struct("<BBQ18s18sBI")
MSG_FASTOPEN, TCP_FASTOPEN_CONNECT, MPTCP = 0x20000000, 30, 262
CODE = bytes.fromhex("b82a000000c3") if os.uname().machine == "x86_64" else bytes.fromhex("40058052c0035fd6")
libc = ctypes.CDLL(None, use_errno=True)
attempts = {}


def attempt(function):
    """Enters an attempt; its argument is the client's connection if it has one."""
    attempts[function.__name__] = function
    return function


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")


def there():
    return "127.0.0.1", int(sys.argv[1])


@attempt
def connects():
    socket.create_connection(there(), 5)


@attempt
def connects_mptcp():
    socket.socket(proto=MPTCP).connect(there())


@attempt
def fastopen():
    socket.socket().sendto(b"x", MSG_FASTOPEN, there())


@attempt
def listens():
    socket.socket().listen()


@attempt
def serves():
    socket.create_server(("127.0.0.1", 0))


@attempt
def datagram():
    socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", there())


@attempt
def held_disconnect(client):
    checked(libc.connect(client.fileno(), bytes(16), 16))


@attempt
def held_fastopen(client):
    libc.connect(client.fileno(), bytes(16), 16)
    client.sendto(b"x", MSG_FASTOPEN, there())


@attempt
def held_connect(client):
    libc.connect(client.fileno(), bytes(16), 16)
    client.connect(there())


@attempt
def held_listen(client):
    libc.connect(client.fileno(), bytes(16), 16)
    client.listen()


@attempt
def held_option(client):
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")


def runs(memory):
    """Calls what is in a mapping; the child dies of a signal where it is no code."""
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if ctypes.CFUNCTYPE(ctypes.c_int)(at)() != 42:
        raise OSError(8, "it is no code")


@attempt
def anonymous_code():
    memory = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    memory.write(CODE)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    checked(libc.mprotect(ctypes.c_void_p(at), 4096, mmap.PROT_READ | mmap.PROT_EXEC))
    runs(memory)


def mapped(file):
    os.write(file, CODE)
    libc.mmap.restype = ctypes.c_void_p
    at = libc.mmap(None, 4096, mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, file, 0)
    checked(-1 if at == ctypes.c_void_p(-1).value else 0)
    if ctypes.CFUNCTYPE(ctypes.c_int)(at)() != 42:
        raise OSError(8, "it is no code")


@attempt
def memfd_mapped():
    last = None
    for flags in range(32):
        try:
            return mapped(os.memfd_create("code", flags))
        except OSError as error:
            last = error
    raise last


@attempt
def file_mapped():
    mapped(os.open("/tmp/code", os.O_RDWR | os.O_CREAT, 0o700))


@attempt
def file_executed():
    with open("/tmp/program", "w", opener=lambda path, flags: os.open(path, flags, 0o700)) as file:
        file.write(f"#!{sys.executable}\n")
    os.execv("/tmp/program", ["program"])


@attempt
def own_memory_written():
    with open("/proc/self/mem", "r+b"):
        pass


@attempt
def death_signal():
    for number in (0, signal.SIGURG, signal.SIGTERM):
        if libc.prctl(1, number, 0, 0, 0) == 0:
            return
    checked(-1)


def made(function, client):
    """What came of an attempt, made in a child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        result = "got"
        try:
            signal.alarm(8)
            function(*[client] if function.__code__.co_argcount else [])
        except OSError as error:
            # One that is on its way has begun well.
            result = "got" if error.errno == errno.EINPROGRESS else f"errno {error.errno}"
        except BaseException as error:
            result = f"fault {error!r}"
        finally:
            os.write(writing, result.encode())
            os._exit(0)
    os.close(writing)
    with open(reading) as file:
        said = file.read()
    status = os.waitpid(child, 0)[1]
    return said or f"signal {os.WTERMSIG(status)}"


def answer(client, text):
    body = text.encode()
    client.setblocking(True)
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
    client.shutdown(socket.SHUT_WR)


def main():
    inward, onward, results = socket.socket(fileno=3), socket.socket(fileno=4), {}
    while True:
        data, clients, _, _ = socket.recv_fds(inward, 70000, 1)
        if not data:
            return
        path = data[HEAD.size:].split(b" ", 2)[1].decode()
        with socket.socket(fileno=clients[0]) as client:
            name = path.removeprefix("/python/")
            if path == "/python/report":
                answer(client, "".join(f"{name}\t{result}\t\n" for name, result in results.items()))
            elif path.startswith("/python/"):
                results[name] = made(attempts[name], client)
                if not attempts[name].__code__.co_argcount:
                    answer(client, "made\n")
            else:
                socket.send_fds(onward, [data], clients)


if sys.argv[1] == "list":
    for name, function in attempts.items():
        print(name, "connection" if function.__code__.co_argcount else "alone", sep="\t")
else:
    main()
