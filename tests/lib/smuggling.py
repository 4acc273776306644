"""The table of request smuggling probes: what is sent, and how it may be read.

Every probe is followed by a request for `/hidden` (if it has to be refused) or `/canary` (if it may be read in the one
safe way). A server is sound if a refused probe gets one answer and a closed connection, and if a probe that is read
gets just the answers named here, the canary's being the last: nothing that was meant as a body is ever a request.
"""

import dataclasses

#: What a refusal may look like: the status depends on what is wrong.
REFUSALS = (400, 405, 408, 411, 413, 414, 417, 421, 431, 501, 505)
#: Instead of statuses: what comes is taken for a body that has not ended.
WAITS = ()
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: main.test\r\n\r\n"
CANARY = b"GET /canary HTTP/1.1\r\nHost: main.test\r\nConnection: close\r\n\r\n"
HOST = b"Host: main.test\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST
POST = b"POST /probe/echo HTTP/1.1\r\n" + HOST
TE = b"Transfer-Encoding: chunked\r\n"
CHUNKED = POST + TE + b"\r\n"
END = b"0\r\n\r\n"
#: A body of 3 bytes, in chunks.
ABC = b"3\r\nabc\r\n" + END


@dataclasses.dataclass(frozen=True)
class Probe:
    """One probe: `statuses` of the answers before the canary's if it may be read, None if it has to be refused.

    `either` is for what a specification leaves open: refused, or read as `statuses` say.
    """

    name: str
    data: bytes
    statuses: tuple | None = None
    length: int | None = None
    either: bool = False


def refused(group, **probes):
    return [Probe(f"{group}: {name.replace('_', ' ')}", data) for name, data in probes.items()]


def read(name, data, *statuses, length=None, either=False):
    return Probe(name, data, statuses or (200,), length, either)


def with_coding(coding):
    """A chunked body of 3 bytes whose Transfer-Encoding line is `coding`."""
    return POST + coding + b"\r\n\r\n" + ABC


def with_length(value, body=b"abc"):
    return POST + b"Content-Length:" + value + b"\r\n\r\n" + body


def with_line(line):
    return GET + line + b"\r\n\r\n"


def with_host(line):
    return b"GET / HTTP/1.1\r\n" + line + b"\r\n\r\n"


CONFLICTS = refused(
    "framing",
    CL_TE=POST + b"Content-Length: 6\r\n" + TE + b"\r\n0\r\n\r\nG",
    TE_CL=POST + TE + b"Content-Length: 4\r\n\r\n5c\r\nGPOST / HTTP/1.1\r\n\r\n",
    CL_0_TE=POST + b"Content-Length: 0\r\n" + TE + b"\r\n" + ABC,
    TE_twice=POST + TE + TE + b"\r\n" + ABC,
    TE_and_identity=POST + TE + b"Transfer-Encoding: identity\r\n\r\n" + ABC,
    identity_and_TE=POST + b"Transfer-Encoding: identity\r\n" + TE + b"\r\n" + ABC,
    identity_with_length=POST + b"Transfer-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc",
    TE_in_HTTP_1_0=CHUNKED.replace(b"1.1", b"1.0", 1) + ABC,
    TE_in_GET_and_length=GET + TE + b"Content-Length: 3\r\n\r\n" + ABC,
)

CODINGS = refused(
    "coding",
    blank_before_colon=with_coding(b"Transfer-Encoding : chunked"),
    tab_before_colon=with_coding(b"Transfer-Encoding\t: chunked"),
    xchunked=with_coding(b"Transfer-Encoding: xchunked"),
    chunked_and_more=with_coding(b"Transfer-Encoding: chunked-x"),
    vertical_tab_before=with_coding(b"Transfer-Encoding:\x0bchunked"),
    vertical_tab_after=with_coding(b"Transfer-Encoding: chunked\x0b"),
    form_feed=with_coding(b"Transfer-Encoding:\x0cchunked"),
    no_break_space=with_coding(b"Transfer-Encoding: chunked\xa0"),
    NUL_after=with_coding(b"Transfer-Encoding: chunked\0"),
    NUL_in_name=with_coding(b"Transfer-Encoding\0: chunked"),
    quoted=with_coding(b'Transfer-Encoding: "chunked"'),
    parameter=with_coding(b"Transfer-Encoding: chunked;q=1"),
    list_identity_chunked=with_coding(b"Transfer-Encoding: identity, chunked"),
    list_chunked_identity=with_coding(b"Transfer-Encoding: chunked, identity"),
    list_chunked_chunked=with_coding(b"Transfer-Encoding: chunked, chunked"),
    list_gzip_chunked=with_coding(b"Transfer-Encoding: gzip, chunked"),
    empty=with_coding(b"Transfer-Encoding:"),
    folded_value=with_coding(b"Transfer-Encoding:\r\n chunked"),
    folded_into_another=with_coding(b"X-One: a\r\n\tTransfer-Encoding: chunked"),
    after_a_bare_LF=with_coding(b"X-One: a\nTransfer-Encoding: chunked"),
    after_a_bare_CR=with_coding(b"X-One: a\rTransfer-Encoding: chunked"),
    after_CR_LF_CR=with_coding(b"X-One: a\r\n\rTransfer-Encoding: chunked"),
    before_a_bare_LF=with_coding(b"Transfer-Encoding: chunked\nX-One: a"),
    name_in_quotes=with_coding(b'"Transfer-Encoding": chunked'),
) + [
    read("coding: in capitals", with_coding(b"TRANSFER-ENCODING: CHUNKED"), length=3),
    read("coding: after a tab", with_coding(b"Transfer-Encoding:\tchunked"), length=3, either=True),
    read("coding: no blank", with_coding(b"Transfer-Encoding:chunked"), length=3),
    read("coding: blanks around", with_coding(b"Transfer-Encoding:   chunked  "), length=3, either=True),
    # Not the header at all: an underscore is only the same where lines become variables of an environment.
    read("coding: underscore", POST + b"Transfer_Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc", length=3, either=True),
    read("coding: only announced", POST + b"TE: chunked\r\nContent-Length: 3\r\n\r\nabc", length=3),
    read("coding: named in Connection", POST + TE + b"Connection: Transfer-Encoding\r\n\r\n" + ABC, length=3, either=True),
]

LENGTHS = refused(
    "length",
    same_twice=POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    same_as_a_list=with_length(b" 3, 3"),
    leading_noughts=with_length(b" 0003"),
    two_different=POST + b"Content-Length: 3\r\nContent-Length: 45\r\n\r\nabc",
    two_with_other_names=POST + b"Content-Length: 3\r\ncontent-length: 0\r\n\r\nabc",
    list_of_different=with_length(b" 3, 45"),
    plus=with_length(b" +3"),
    minus=with_length(b" -3"),
    minus_nought=with_length(b" -0", b""),
    hexadecimal=with_length(b" 0x3"),
    blank_inside=with_length(b" 3 3"),
    digits_and_letter=with_length(b" 3a"),
    fraction=with_length(b" 3.0"),
    exponent=with_length(b" 3e0"),
    underscore=with_length(b" 0_3"),
    semicolon=with_length(b" 3;"),
    quoted=with_length(b' "3"'),
    empty=with_length(b"", b""),
    blank=with_length(b" ", b""),
    vertical_tab=with_length(b" \x0b3"),
    NUL_after=with_length(b" 3\0"),
    wide_digit=with_length(" ３".encode()),
    two_to_the_64_and_3=with_length(b" 18446744073709551619"),
    thirty_digits=with_length(b" " + b"0" * 29 + b"9" * 30),
    blank_before_colon=POST + b"Content-Length : 3\r\n\r\nabc",
    folded=with_length(b"\r\n 3"),
    after_a_bare_LF=POST + b"X-One: a\nContent-Length: 3\r\n\r\nabc",
    after_a_bare_CR=POST + b"X-One: a\rContent-Length: 3\r\n\r\nabc",
) + [
    # RFC 9112 6.3: the same value again may be refused or taken for one.
    read("length: blanks around", with_length(b"   3  "), length=3),
    read("length: named in Connection", POST + b"Content-Length: 3\r\nConnection: Content-Length\r\n\r\nabc", length=3, either=True),
]

CHUNKS = refused(
    "chunk",
    size_of_17_digits=CHUNKED + b"10000000000000003\r\nabc\r\n" + END,
    size_beyond_64_bits=CHUNKED + b"F" * 40 + b"\r\nabc\r\n" + END,
    size_0x=CHUNKED + b"0x3\r\nabc\r\n" + END,
    size_negative=CHUNKED + b"-3\r\nabc\r\n" + END,
    size_plus=CHUNKED + b"+3\r\nabc\r\n" + END,
    size_with_underscore=CHUNKED + b"0_3\r\nabc\r\n" + END,
    size_empty=CHUNKED + b"\r\nabc\r\n" + END,
    size_of_an_extension_only=CHUNKED + b";a=b\r\nabc\r\n" + END,
    size_no_digit=CHUNKED + b"g\r\nabc\r\n" + END,
    size_blank_before=CHUNKED + b" 3\r\nabc\r\n" + END,
    size_tab_before=CHUNKED + b"\t3\r\nabc\r\n" + END,
    size_blank_after=CHUNKED + b"3 \r\nabc\r\n" + END,
    size_blank_and_extension=CHUNKED + b"3 ;a=b\r\nabc\r\n" + END,
    size_digits_after_a_blank=CHUNKED + b"3 3\r\nabc\r\n" + END,
    size_and_NUL=CHUNKED + b"3\0\r\nabc\r\n" + END,
    size_and_bare_LF=CHUNKED + b"3\nabc\r\n" + END,
    size_and_bare_CR=CHUNKED + b"3\rabc\r\n" + END,
    size_CR_and_another=CHUNKED + b"3\rX\nabc\r\n" + END,
    data_longer_than_size=CHUNKED + b"3\r\nabcd\r\n" + END,
    data_shorter_than_size=CHUNKED + b"4\r\nabc\r\n" + END,
    data_without_CR_LF=CHUNKED + b"3\r\nabc" + END,
    data_and_bare_LF=CHUNKED + b"3\r\nabc\n" + END,
    data_and_bare_CR=CHUNKED + b"3\r\nabc\r" + END,
    data_and_two_bytes=CHUNKED + b"3\r\nabcXX" + END,
    last_and_bare_LF=CHUNKED + b"3\r\nabc\r\n0\n\r\n",
    last_and_LF_LF=CHUNKED + b"3\r\nabc\r\n0\n\n",
    end_of_bare_CR=CHUNKED + b"3\r\nabc\r\n0\r\n\rX",
    extension_and_bare_LF=CHUNKED + b"3;a\nabc\r\n" + END,
    extension_with_bare_LF_inside=CHUNKED + b"3;a\nb\r\nabc\r\n" + END,
    extension_with_bare_CR_inside=CHUNKED + b"3;a\rb\r\nabc\r\n" + END,
    extension_of_odd_bytes=CHUNKED + b"3;\x01\xff\x80\r\nabc\r\n" + END,
    extension_with_NUL=CHUNKED + b"3;a\0b\r\nabc\r\n" + END,
    end_of_bare_LF=CHUNKED + b"3\r\nabc\r\n0\r\n\n" + HIDDEN,
    trailer_ended_by_bare_LF=CHUNKED + b"3\r\nabc\r\n0\r\nX-One: a\n\n" + HIDDEN,
    trailer_folded=CHUNKED + b"3\r\nabc\r\n0\r\nX-One: a\r\n b\r\n\r\n",
    extension_of_100_KB=CHUNKED + b"3;" + b"a" * 100_000 + b"\r\nabc\r\n" + END,
    extensions_of_100_KB_in_all=CHUNKED + (b"1;" + b"a" * 1000 + b"\r\nx\r\n") * 100 + END,
    extension_of_the_last=CHUNKED + b"3\r\nabc\r\n0;a\n\r\n",
    trailer_with_bare_LF=CHUNKED + b"3\r\nabc\r\n0\r\nX-One: a\nX-Two: b\r\n\r\n",
    trailer_of_100_KB=CHUNKED + b"3\r\nabc\r\n0\r\nX-One: " + b"a" * 100_000 + b"\r\n\r\n",
    trailer_of_1000_lines=CHUNKED + b"3\r\nabc\r\n0\r\n" + b"X-One: a\r\n" * 1000 + b"\r\n",
    no_chunk_but_a_request=CHUNKED + HIDDEN,
) + [
    # So many bytes are to come: all that follows is body, until a deadline or a limit ends it.
    Probe("chunk: size of all ones", CHUNKED + b"FFFFFFFFFFFFFFFF\r\nabc\r\n" + END, WAITS, either=True),
    # A bare LF ends no trailer: what follows is still the trailer of the same message.
    read("chunk: plain", CHUNKED + ABC, length=3),
    read("chunk: capitals and noughts", CHUNKED + b"00000A\r\n0123456789\r\n000\r\n\r\n", length=10, either=True),
    read("chunk: extension", CHUNKED + b"3;a=b\r\nabc\r\n" + END, length=3),
    read("chunk: quoted extension", CHUNKED + b'3;a="b;c"\r\nabc\r\n' + END, length=3, either=True),
    read("chunk: a request in an extension", CHUNKED + b"3;GET /hidden HTTP/1.1\r\nabc\r\n" + END, length=3, either=True),
    read("chunk: a request as data", CHUNKED + b"%x\r\n%s\r\n" % (len(HIDDEN), HIDDEN) + END, length=len(HIDDEN)),
    # A trailer says nothing about the message that it ends.
    read("chunk: trailer", CHUNKED + b"3\r\nabc\r\n0\r\nX-One: a\r\n\r\n", length=3),
    read("chunk: trailer Content-Length", CHUNKED + b"3\r\nabc\r\n0\r\nContent-Length: 40\r\n\r\n", length=3, either=True),
    read("chunk: trailer Transfer-Encoding", CHUNKED + b"3\r\nabc\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n", length=3, either=True),
    read("chunk: trailer Host", CHUNKED + b"3\r\nabc\r\n0\r\nHost: other.test\r\n\r\n", length=3, either=True),
]

HOSTS = refused(
    "host",
    same_twice=with_host(b"Host: main.test\r\nHost: main.test"),
    two_different=with_host(b"Host: main.test\r\nHost: other.test"),
    two_in_other_letters=with_host(b"Host: main.test\r\nhOST: other.test"),
    none=b"GET / HTTP/1.1\r\n\r\n",
    list=with_host(b"Host: main.test, other.test"),
    two_by_blank=with_host(b"Host: main.test other.test"),
    user=with_host(b"Host: other.test@main.test"),
    path=with_host(b"Host: main.test/other"),
    query=with_host(b"Host: main.test?other"),
    fragment=with_host(b"Host: main.test#other"),
    backslash=with_host(b"Host: main.test\\other"),
    two_ports=with_host(b"Host: main.test:80:81"),
    port_no_number=with_host(b"Host: main.test:8o"),
    port_too_large=with_host(b"Host: main.test:99999999999"),
    open_bracket=with_host(b"Host: [::1"),
    blank_before_colon=with_host(b"Host : main.test"),
    blank_before_name=with_host(b" Host: main.test"),
    tab_before_name=with_host(b"\tHost: main.test"),
    folded=with_host(b"Host:\r\n main.test"),
    NUL=with_host(b"Host: main.test\0other.test"),
    percent=with_host(b"Host: main%2etest%00"),
    absolute_another=b"GET http://other.test/ HTTP/1.1\r\n" + HOST + b"\r\n",
    absolute_another_port=b"GET http://main.test:1/ HTTP/1.1\r\n" + HOST + b"\r\n",
    absolute_user=b"GET http://main.test@other.test/ HTTP/1.1\r\n" + HOST + b"\r\n",
    absolute_no_host=b"GET http:/// HTTP/1.1\r\n" + HOST + b"\r\n",
    absolute_other_scheme=b"GET gopher://main.test/ HTTP/1.1\r\n" + HOST + b"\r\n",
    absolute_two_hosts=b"GET http://main.test/ HTTP/1.1\r\n" + HOST + b"Host: other.test\r\n\r\n",
    absolute_backslash=b"GET http://main.test\\other.test/ HTTP/1.1\r\n" + HOST + b"\r\n",
    network_path=b"GET main.test/ HTTP/1.1\r\n" + HOST + b"\r\n",
) + [
    read("host: X-Forwarded-Host says nothing", GET + b"X-Forwarded-Host: other.test\r\n\r\n"),
    read("host: two slashes are a path", b"GET //other.test/ HTTP/1.1\r\n" + HOST + b"\r\n", 404, either=True),
    read("host: capitals and a dot", with_host(b"Host: MAIN.test."), 200, either=True),
]

LINES = refused(
    "line",
    two_blanks=b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n",
    blanks_before_version=b"GET /  HTTP/1.1\r\n" + HOST + b"\r\n",
    tab=b"GET\t/ HTTP/1.1\r\n" + HOST + b"\r\n",
    tab_before_version=b"GET /\tHTTP/1.1\r\n" + HOST + b"\r\n",
    blank_at_end=b"GET / HTTP/1.1 \r\n" + HOST + b"\r\n",
    blank_at_start=b" GET / HTTP/1.1\r\n" + HOST + b"\r\n",
    CR_CR_LF=b"GET / HTTP/1.1\r\r\n" + HOST + b"\r\n",
    bare_LF=b"GET / HTTP/1.1\n" + HOST + b"\r\n",
    bare_CR=b"GET / HTTP/1.1\r" + HOST + b"\r\n",
    all_bare_LF=b"GET / HTTP/1.1\nHost: main.test\n\n",
    version_1_10=b"GET / HTTP/1.10\r\n" + HOST + b"\r\n",
    version_01_1=b"GET / HTTP/01.1\r\n" + HOST + b"\r\n",
    version_small=b"GET / http/1.1\r\n" + HOST + b"\r\n",
    version_2=b"GET / HTTP/2.0\r\n" + HOST + b"\r\n",
    version_twice=b"GET / HTTP/1.1 HTTP/1.1\r\n" + HOST + b"\r\n",
    no_version=b"GET /\r\n" + HOST + b"\r\n",
    NUL_in_target=b"GET /\0 HTTP/1.1\r\n" + HOST + b"\r\n",
    control_in_target=b"GET /\x0b HTTP/1.1\r\n" + HOST + b"\r\n",
    DEL_in_target=b"GET /\x7f HTTP/1.1\r\n" + HOST + b"\r\n",
    fragment=b"GET /#x HTTP/1.1\r\n" + HOST + b"\r\n",
    bad_method=b"G(T / HTTP/1.1\r\n" + HOST + b"\r\n",
    method_with_colon=b"GET: / HTTP/1.1\r\n" + HOST + b"\r\n",
    folded=with_line(b"X-One: a\r\n b"),
    folded_by_tab=with_line(b"X-One: a\r\n\tb"),
    folded_empty=with_line(b"X-One: a\r\n "),
    blank_in_name=with_line(b"X One: a"),
    blank_before_colon=with_line(b"X-One : a"),
    no_colon=with_line(b"X-One"),
    no_name=with_line(b": a"),
    NUL_in_name=with_line(b"X\0One: a"),
    NUL_in_value=with_line(b"X-One: a\0b"),
    CR_in_value=with_line(b"X-One: a\rb"),
    CR_at_end_of_value=with_line(b"X-One: a\r"),
    LF_in_value=with_line(b"X-One: a\nX-Two: b"),
    bare_LF_as_end=GET + b"X-One: a\r\n\n",
    high_byte_in_name=with_line(b"X-\xd6ne: a"),
    method_in_small_letters=b"get / HTTP/1.1\r\n" + HOST + b"\r\n",
    TRACE=b"TRACE / HTTP/1.1\r\n" + HOST + b"\r\n",
    CONNECT=b"CONNECT main.test:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    preface_of_HTTP_2=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)

EMBED = HIDDEN + b"a" * 3
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"
BODIES = [
    read("body: GET with a length", GET + b"Content-Length: %d\r\n\r\n%s" % (len(EMBED), EMBED), 200),
    read("body: GET with chunks", GET + TE + b"\r\n%x\r\n%s\r\n" % (len(EMBED), EMBED) + END, 200),
    read("body: HEAD with a length", b"HEAD / HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n%s" % (len(EMBED), EMBED), 200),
    read("body: of a page", b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n%s" % (len(EMBED), EMBED), 405, either=True),
    read("body: of what is not there", b"POST /no HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n%s" % (len(EMBED), EMBED), 405, either=True),
    read("body: expected", POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n%s" % (len(EMBED), EMBED), length=len(EMBED)),
    read("body: expected of a page", b"POST / HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n%s" % (len(EMBED), EMBED), 405, either=True),
    read("body: an unread one of a service", POST.replace(b"/echo", b"") + b"Content-Length: %d\r\n\r\n%s" % (len(EMBED), EMBED), 200, either=True),
    read("upgrade: h2c of a page", GET + H2C),
    read("upgrade: h2c of a service", POST + b"Content-Length: 3\r\n" + H2C + b"abc", length=3),
    read("upgrade: h2c of a service, in GET", GET.replace(b" / ", b" /probe/echo ") + H2C),
    read("upgrade: WebSocket that is not taken", GET.replace(b" / ", b" /probe/echo ") + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", 200, either=True),
    read("end: garbage after a request", GET + b"\r\n\x01garbage\r\n\r\n", 200, 400),
    read("end: a body that was not announced", POST + b"\r\n" + b"abc\r\n\r\n", 200, 400, length=0),
    read("end: empty lines between requests", GET + b"\r\n\r\n\r\n"),
]

PROBES = CONFLICTS + CODINGS + LENGTHS + CHUNKS + HOSTS + LINES + BODIES
