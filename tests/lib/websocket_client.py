"""A client of WebSocket: that of the library `websockets`, on an event loop of its own.

Not the library's client with threads: over TLS it reads and writes from two threads at once, which OpenSSL does not
allow and Python does not prevent, and a ticket that arrives while a request is written is then the end of either.
"""

import asyncio
import socket
import struct
import threading

#: More than any answer takes.
PATIENCE = 20


class Client:
    """A connection to `uri` by way of the port `port` of this machine; `more` is for the library's `connect`."""

    def __init__(self, uri, port, **more):
        from websockets.asyncio.client import connect

        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        raw = socket.create_connection(("127.0.0.1", port), 10)

        async def opened():
            return await connect(uri, sock=raw, max_size=None, compression=None, **more)

        try:
            self.socket = self._wait(opened())
        except BaseException:
            self._end()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _wait(self, what, timeout=PATIENCE):
        async def bounded():
            return await asyncio.wait_for(what, timeout)

        return asyncio.run_coroutine_threadsafe(bounded(), self.loop).result()

    def _end(self):
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join()
            self.loop.close()

    def send(self, message):
        self._wait(self.socket.send(message))

    def send_all(self, messages):
        """Sends messages one right behind the other."""

        async def sent():
            for message in messages:
                await self.socket.send(message)

        self._wait(sent())

    def recv(self, timeout=PATIENCE):
        return self._wait(self.socket.recv(), timeout)

    def ping(self):
        """Raises if there is no answer."""

        async def answered():
            await (await self.socket.ping())

        self._wait(answered())

    def close(self, code=1000, reason=""):
        """Closes it, unless it is closed."""
        if not self.loop.is_closed():
            self._wait(self.socket.close(code, reason))
            self._end()

    @property
    def closed_with(self):
        """The codes of the end, here and from the other side; None where there is none."""
        received = self.socket.protocol.close_rcvd
        return self.socket.close_code, received and received.code


def frame(text, opcode=1):
    mask = b"\1\2\3\4"
    data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(text))
    length = bytes([0x80 | len(text)]) if len(text) < 126 else b"\xfe" + struct.pack(">H", len(text))
    return bytes([0x80 | opcode]) + length + mask + data
