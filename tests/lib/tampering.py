"""A client whose records are changed on their way: a relay in this process flips a byte of what the client sends."""

import socket
import ssl
import threading

from secured import Clients


def pump(source, target, change):
    """Copies until the end; `change` makes of the bytes what is sent."""
    try:
        while data := source.recv(65536):
            target.sendall(change(data))
    except OSError:
        pass
    try:
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def tampered(server, kind):
    """Talks to the server with a byte of `handshake` or `request` changed: `alert`, `closed`, or what was answered."""
    listener = socket.create_server(("127.0.0.1", 0))
    seen = {"client": 0, "armed": kind == "handshake"}

    def change(data):
        seen["client"] += 1
        if not seen["armed"] or seen["client"] < 2:
            return data
        seen["armed"] = False
        return data[:-1] + bytes([data[-1] ^ 1])

    def relay():
        accepted, _ = listener.accept()
        with accepted, socket.create_connection(("127.0.0.1", server.tls_port)) as onward:
            back = threading.Thread(target=pump, args=(onward, accepted, lambda data: data), daemon=True)
            back.start()
            pump(accepted, onward, change)
            back.join(5)

    thread = threading.Thread(target=relay, daemon=True)
    thread.start()
    try:
        plain = socket.create_connection(listener.getsockname(), timeout=5)
        with Clients.context().wrap_socket(plain, server_hostname="main.test") as secure:
            seen["armed"] = True
            secure.sendall(b"GET / HTTP/1.1\r\nHost: main.test\r\n\r\n")
            answer = secure.recv(100)
            return answer.decode("latin-1") or "closed"
    except ssl.SSLError as error:
        return "alert" if "ALERT" in str(error).upper() else f"{error}"
    except (ConnectionError, TimeoutError) as error:
        return "closed" if isinstance(error, ConnectionError) else "nothing"
    finally:
        listener.close()
        thread.join(5)
