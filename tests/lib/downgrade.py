"""HTTP/2 requests that would be two requests, or another one, if they were passed on as HTTP/1.1."""

CANARY = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"main.test"), (b":path", b"/probe/echo?canary")]


def lines(*more, method=b"POST", path=b"/probe/echo", authority=b"main.test", scheme=b"https"):
    return [(b":method", method), (b":scheme", scheme), (b":authority", authority), (b":path", path), *more]


HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: main.test\r\n\r\n"
#: What it is, its header lines and the pieces of its body: each is refused.
REFUSED = [
    ("Transfer-Encoding", lines((b"transfer-encoding", b"chunked")), b"0\r\n\r\n" + HIDDEN),
    ("Transfer-Encoding and a length", lines((b"transfer-encoding", b"chunked"), (b"content-length", b"3")), b"abc"),
    ("Connection", lines((b"connection", b"keep-alive")), b"abc"),
    ("Keep-Alive", lines((b"keep-alive", b"timeout=5")), b"abc"),
    ("Proxy-Connection", lines((b"proxy-connection", b"keep-alive")), b"abc"),
    ("Upgrade", lines((b"upgrade", b"h2c")), b"abc"),
    ("Proxy, which CGI takes for its own", lines((b"proxy", b"http://evil.test/")), b"abc"),
    ("TE other than trailers", lines((b"te", b"chunked")), b"abc"),
    ("a length that is too small", lines((b"content-length", b"0")), HIDDEN),
    ("a length that is too large", lines((b"content-length", b"100")), b"abc"),
    ("two lengths", lines((b"content-length", b"3"), (b"content-length", b"45")), b"abc"),
    ("a length with a sign", lines((b"content-length", b"+3")), b"abc"),
    ("a length as a list", lines((b"content-length", b"3, 45")), b"abc"),
    ("CR LF in a value", lines((b"x-one", b"a\r\nTransfer-Encoding: chunked")), b"0\r\n\r\n" + HIDDEN),
    ("CR LF CR LF in a value", lines((b"x-one", b"a\r\n\r\n" + HIDDEN)), b"abc"),
    ("LF in a value", lines((b"x-one", b"a\nTransfer-Encoding: chunked")), b"abc"),
    ("CR in a value", lines((b"x-one", b"a\rb")), b"abc"),
    ("NUL in a value", lines((b"x-one", b"a\0b")), b"abc"),
    ("CR LF in a name", lines((b"x-one: a\r\ntransfer-encoding", b"chunked")), b"abc"),
    ("colon in a name", lines((b"transfer-encoding: chunked\r\nx", b"y")), b"abc"),
    ("blank in a name", lines((b"x one", b"a")), b"abc"),
    ("capitals in a name", lines((b"X-One", b"a")), b"abc"),
    ("empty name", lines((b"", b"a")), b"abc"),
    ("blank and version in the path", lines(path=b"/probe/echo HTTP/1.1\r\nHost: main.test\r\n\r\nGET /hidden"), b"abc"),
    ("blank in the path", lines(path=b"/probe/echo x"), b"abc"),
    ("CR LF in the path", lines(path=b"/probe/echo\r\nX-One: a"), b"abc"),
    ("path without a slash", lines(path=b"probe/echo"), b"abc"),
    ("absolute path", lines(path=b"http://other.test/probe/echo"), b"abc"),
    ("asterisk", lines(path=b"*"), b"abc"),
    ("request in the method", lines(method=b"GET /hidden HTTP/1.1\r\nHost: main.test\r\n\r\nPOST"), b"abc"),
    ("blank in the method", lines(method=b"POST /x"), b"abc"),
    ("CONNECT", [(b":method", b"CONNECT"), (b":authority", b"main.test")], b"abc"),
    ("unknown protocol", lines((b":protocol", b"connect-udp"), method=b"CONNECT"), b"abc"),
    ("WebSocket with a length", lines((b":protocol", b"websocket"), (b"content-length", b"3"), method=b"CONNECT"), b"abc"),
    ("WebSocket by POST", lines((b":protocol", b"websocket")), b"abc"),
    ("CR LF in the authority", lines(authority=b"main.test\r\nTransfer-Encoding: chunked"), b"abc"),
    ("user in the authority", lines(authority=b"a@main.test"), b"abc"),
    ("path in the authority", lines(authority=b"main.test/x"), b"abc"),
    ("blank in the authority", lines(authority=b"main.test other.test"), b"abc"),
    ("another host", lines((b"host", b"other.test")), b"abc"),
    ("two authorities", lines((b":authority", b"other.test")), b"abc"),
    ("two paths", lines((b":path", b"/hidden")), b"abc"),
    ("two methods", lines((b":method", b"GET")), b"abc"),
    ("two hosts", lines((b"host", b"main.test"), (b"host", b"other.test")), b"abc"),
    ("CR LF in the scheme", lines(scheme=b"https\r\nX-One: a"), b"abc"),
    ("pseudo-header after others", [(b"x-one", b"a"), *lines()], b"abc"),
    ("unknown pseudo-header", lines((b":hidden", b"a")), b"abc"),
    ("status in a request", lines((b":status", b"200")), b"abc"),
    ("no path", [one for one in lines() if one[0] != b":path"], b"abc"),
    ("no scheme", [one for one in lines() if one[0] != b":scheme"], b"abc"),
    ("no host", [one for one in lines() if one[0] != b":authority"], b"abc"),
    ("unknown host", lines(authority=b"other.test"), b"abc"),
]
#: Read in the one way there is: the length of the body that the service sees.
READ = [
    ("plain", lines(), (b"abc",), 3),
    ("pieces", lines(), (b"a", b"", b"bc"), 3),
    ("a length", lines((b"content-length", b"3")), (b"ab", b"c"), 3),
    ("a request as body", lines(), (HIDDEN,), len(HIDDEN)),
    ("chunks as body", lines(), (b"0\r\n\r\n" + HIDDEN,), len(HIDDEN) + 5),
    ("TE: trailers", lines((b"te", b"trailers")), (b"abc",), 3),
    ("GET with a length", lines((b"content-length", b"%d" % len(HIDDEN)), method=b"GET"), (HIDDEN,), len(HIDDEN)),
    # It is passed on in chunks, as it has no length.
    ("GET with a body", lines(method=b"GET"), (HIDDEN,), len(HIDDEN)),
    # The library for HTTP/2 takes a fragment off; it never gets as far as the service.
    ("fragment in the path", lines(path=b"/probe/echo#x"), (b"abc",), 3),
    ("the same host twice", lines((b"host", b"main.test")), (b"abc",), 3),
]
REFUSALS = ("reset", "goaway", "closed", 400, 404, 405, 413, 417, 421, 431, 501)
