"""Asks a server all of the questions of `framings` that stands behind a filter, and judges what it answers."""

import concurrent.futures
import contextlib
import re
import socket

import framings

#: A filter that refuses the secret, and passes on everything else.
FILTER = """
from bulkhead_filter import requests
for request in requests():
    if b"secret" in request.head:
        request.drop(403)
    else:
        request.pass_on()
"""

#: How long an answer may take; a server that says no more has to let go of its client meanwhile.
PATIENCE = 20
#: After how long a client says that nothing more will come.
QUIET = 5

STATUS = re.compile(rb"HTTP/1\.[01] (\d\d\d)")


def exchange(port, first, second, before=b"", wait=False):
    """All that a server says to two requests on one connection: at once, or the second after the first answer."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        said = b""
        try:
            client.sendall(before + first + (b"" if wait else second))
            if wait:
                with contextlib.suppress(TimeoutError):
                    said = answer(client, first.startswith(b"HEAD"))
                client.sendall(second)
            return said + rest(client)
        except (ConnectionError, BrokenPipeError):
            return said


def rest(client):
    """What comes until the end. Who waits for more of a body than there is hears that there is no more."""
    said = b""
    client.settimeout(QUIET)
    while True:
        try:
            more = client.recv(65536)
        except TimeoutError:
            if client.gettimeout() == PATIENCE:
                raise
            client.shutdown(socket.SHUT_WR)
            client.settimeout(PATIENCE)
            continue
        except ConnectionError:
            return said
        if not more:
            return said
        said += more


def answer(client, bodyless):
    """What comes until the server is quiet: an answer, or the end."""
    said = b""
    client.settimeout(QUIET)
    while more := client.recv(65536):
        said += more
        final = re.sub(rb"(?s)^HTTP/1.1 100 .*?\r\n\r\n", b"", said)
        head, end, body = final.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        whole = bodyless or (length and len(body) >= int(length[1]))
        if end and (whole or body.endswith(b"0\r\n\r\n") or not length):
            break
    return said


def judge(test, port, host, path="/index.html", before=b"", secret=framings.SECRET_PATH, listed=None):
    """Asks everything, in both ways. `secret` is what is refused: nobody may answer it with 200."""
    second = framings.second(host, secret)
    cases = [(name, wait, first, good) for name, (first, good) in framings.framings(host, path).items()
             for wait in (False, True) if listed is None or name in listed]

    def ask(case):
        try:
            return exchange(port, case[2], second, before, case[1])
        except TimeoutError:
            return None

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, cases))
    seen = 0
    for (name, wait, _, good), said in zip(cases, answers):
        with test.subTest(first=name, waits=wait):
            test.assertIsNotNone(said, "it neither answers nor closes")
            test.assertNotIn(framings.SECRET, said)
            statuses = [int(status) for status in STATUS.findall(said)]
            test.assertLessEqual(len([status for status in statuses if status == 200]), 1, said[:1000])
            if good:
                test.assertTrue(statuses, "it is not answered")
                test.assertNotIn(statuses[0], (400, 403), said[:300])
            seen += 403 in statuses
    return seen
