"""First requests that are framed in every way that servers disagree on; each is followed by a second one, which a filter
refuses. Whatever becomes of the first: nobody may answer the second who has not had it from the filter."""

#: What a filter is to refuse, and no client may ever get.
SECRET_PATH, SECRET = "/secret.html", b"NOT FOR CLIENTS"

BLANKS = " " * 150
ONE_CHUNK = b"5\r\nhello\r\n0\r\n\r\n"


def second(host, path=SECRET_PATH):
    """The request that the filter refuses; it ends the connection, so that nobody waits."""
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()


def first(host, path, lines=(), body=b"", method=None, version="1.1", end="\r\n"):
    method = method or ("POST" if body else "GET")
    head = [f"{method} {path} HTTP/{version}", f"Host: {host}", *lines, "", ""]
    return end.join(head).encode() + body


def chunked(host, path, body, lines=("Transfer-Encoding: chunked",), **more):
    return first(host, path, lines, body, **more)


def hidden(host):
    """The second request, in a chunk of the first: a server that counts in another way would take it for one."""
    text = second(host)
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text)


def framings(host, path="/index.html"):
    """By name: the bytes of the first request, and whether it is a good one, which must be answered."""
    head = lambda *lines, **more: first(host, path, lines, **more)
    chunks = lambda body, **more: chunked(host, path, body, **more)
    length = len(second(host))
    good = {
        "plain": head(),
        "keep-alive": head("Connection: keep-alive"),
        "connection padded": head(f"Connection:{BLANKS}keep-alive{BLANKS}"),
        "connection padded by tabs": head("Connection:" + "\t" * 150 + "keep-alive"),
        "connection repeated": head(*["Connection: keep-alive"] * 8),
        "connection a long list": head("Connection: " + ", ".join(["keep-alive"] * 40)),
        "connection an empty list": head("Connection: ,,, ,keep-alive,,"),
        "upper case": head("CONNECTION: KEEP-ALIVE"),
        "a long line": head("X-Long: " + "x" * 4000),
        "head": head(method="HEAD"),
        "http/1.0 kept": head("Connection: keep-alive", version="1.0"),
        "length": head("Content-Length: 5", body=b"hello"),
        "length padded": head(f"Content-Length:{BLANKS}5{BLANKS}", body=b"hello"),
        "length lower case, no blank": head("content-length:5", body=b"hello"),
        "length none": head("Content-Length: 0", method="POST"),
        "length hides a request": head(f"Content-Length: {length}", body=second(host)),
        "chunks": chunks(ONE_CHUNK),
        "coding padded": chunks(ONE_CHUNK, lines=[f"Transfer-Encoding:{BLANKS}chunked{BLANKS}"]),
        "coding upper case": chunks(ONE_CHUNK, lines=["TRANSFER-ENCODING: CHUNKED"]),
        "chunk of 16 digits": chunks(b"0000000000000005\r\nhello\r\n0000000000000000\r\n\r\n"),
        "chunk hides a request": chunks(hidden(host)),
        "chunks many": chunks(b"1\r\nx\r\n" * 500 + b"0\r\n\r\n"),
    }
    odd = {
        "an empty line first": b"\r\n" + head(),
        "http/1.0": head(version="1.0"),
        "close": head("Connection: close"),
        "close repeated": head("Connection: keep-alive", "Connection: close"),
        "close in a list": head("Connection: keep-alive, close"),
        "close far in a list": head("Connection: " + ", ".join(["keep-alive"] * 30 + ["close"])),
        "chunk of 17 digits": chunks(b"00000000000000005\r\nhello\r\n0\r\n\r\n"),
        "chunk extension": chunks(b"5;a=b\r\nhello\r\n0;c\r\n\r\n"),
        "chunk extension quoted": chunks(b'5;a="b;c"\r\nhello\r\n0\r\n\r\n'),
        "trailers": chunks(b"5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-Other: 2\r\n\r\n"),
        "trailers frame": chunks(b"5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n"),
        "continue": head("Expect: 100-continue", "Content-Length: 5", body=b"hello"),
        "absolute": first(host, f"http://{host}{path}"),
        "options": first(host, "*", method="OPTIONS"),
        "lower-case method": head(method="get"),
        "h2c asked for": head("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"),
        "websocket asked for": head("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                                    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
        "body for get": head("Content-Length: 5", body=b"hello", method="GET"),
    }
    bad = {
        "lines end with lf": head(end="\n"),
        "one line ends with lf": head("X: y\nZ: w"),
        "a bare cr": head("X: y\rZ: w"),
        "a folded line": head("X: y", " z"),
        "a folded length": head("Content-Length:", " 5", body=b"hello"),
        "a folded coding": chunks(ONE_CHUNK, lines=["Transfer-Encoding:", "\tchunked"]),
        "blank before a colon": head("Content-Length : 5", body=b"hello"),
        "lengths differ": head("Content-Length: 5", "Content-Length: 0", body=b"hello"),
        "lengths agree": head("Content-Length: 5", "Content-Length: 5", body=b"hello"),
        "lengths in a list": head("Content-Length: 5, 5", body=b"hello"),
        "length with zeros": head("Content-Length: 000000000000000005", body=b"hello"),
        "length signed": head("Content-Length: +5", body=b"hello"),
        "length hexadecimal": head("Content-Length: 0x5", body=b"hello"),
        "length too long": head("Content-Length: 18446744073709551621", body=b"hello"),
        "length and coding": chunks(ONE_CHUNK, lines=["Content-Length: 5", "Transfer-Encoding: chunked"]),
        "coding twice": chunks(ONE_CHUNK, lines=["Transfer-Encoding: chunked"] * 2),
        "coding list": chunks(ONE_CHUNK, lines=["Transfer-Encoding: identity, chunked"]),
        "coding unknown": chunks(ONE_CHUNK, lines=["Transfer-Encoding: xchunked"]),
        "coding with a control": chunks(ONE_CHUNK, lines=["Transfer-Encoding: \x0bchunked"]),
        "coding in http/1.0": chunks(ONE_CHUNK, version="1.0"),
        "chunk too long": chunks(b"ffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
        "chunk wraps": chunks(b"10000000000000005\r\nhello\r\n0\r\n\r\n"),
        "chunk signed": chunks(b"+5\r\nhello\r\n0\r\n\r\n"),
        "chunk hexadecimal twice": chunks(b"0x5\r\nhello\r\n0\r\n\r\n"),
        "chunk without a size": chunks(b"\r\nhello\r\n0\r\n\r\n"),
        "chunk size ends with lf": chunks(b"5\nhello\r\n0\r\n\r\n"),
        "chunk ends with lf": chunks(b"5\r\nhello\n0\r\n\r\n"),
        "chunk too short": chunks(b"4\r\nhello\r\n0\r\n\r\n"),
        "chunk with words": chunks(b"5 hello\r\nhello\r\n0\r\n\r\n"),
        "extension with lf": chunks(b"5;a\nb\r\nhello\r\n0\r\n\r\n"),
        "trailers with lf": chunks(b"5\r\nhello\r\n0\r\nX: y\n\n"),
        "trailers are a request": chunks(b"5\r\nhello\r\n0\r\n" + second(host)),
        "trailers folded": chunks(b"0\r\nX: y\r\n " + second(host)),
        "connect": first(host, f"{host}:80", method="CONNECT"),
        "preface of http/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "no version": f"GET {path}\r\n\r\n".encode(),
        "version 1.2": head(version="1.2"),
        "two hosts": head("Host: other.test"),
        "a record of tls": b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
    }
    found = {name: (text, True) for name, text in good.items()}
    return found | {name: (text, False) for name, text in (odd | bad).items()}
