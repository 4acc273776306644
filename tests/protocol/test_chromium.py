"""A headless Chromium loads a page with twenty parts over HTTP/2, and shows it; the picture is left in target/protocol.
Another page opens a WebSocket on the same connection. A third one opens WebSockets of the SDK's.
"""

import struct
import unittest
import zlib

from chromium import Chromium
from harness import TOP
from client import until
from pictures import png
from secured import PEER, TLS, ours, serve

IMAGES = 18
PICTURE = TOP / "target/protocol/chromium.png"


def pixels(data):
    """The rows of a PNG of 8 bits a channel, as lists of (red, green, blue)."""
    at, packed = 8, b""
    while at < len(data):
        size, name = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        if name == b"IHDR":
            width, height, _, kind = struct.unpack(">IIBB", body[:10])
        elif name == b"IDAT":
            packed += body
        at += size + 12
    step = {2: 3, 6: 4}[kind]
    raw, above, rows = zlib.decompress(packed), bytes(width * step), []
    for number in range(height):
        kind, line = raw[number * (width * step + 1)], bytearray(raw[number * (width * step + 1) + 1 :][: width * step])
        for i in range(len(line)):
            left = line[i - step] if i >= step else 0
            corner = above[i - step] if i >= step else 0
            line[i] = (line[i] + (0, left, above[i], (left + above[i]) // 2, paeth(left, above[i], corner))[kind]) & 255
        rows.append([tuple(line[i : i + 3]) for i in range(0, len(line), step)])
        above = line
    return rows


def paeth(left, up, corner):
    """The neighbour that the PNG specification's fourth filter takes."""
    return min((left, up, corner), key=lambda one: abs(left + up - corner - one))


COLOURS = [(number * 13 % 256, 255 - number * 7, number * 5 % 256) for number in range(IMAGES)]
PAGE = (
    '<!doctype html><title>Twenty parts</title><link rel=stylesheet href=style.css><script src=script.js defer></script>'
    "<h1>Twenty parts</h1>" + "".join(f'<img src="image-{number}.png">' for number in range(IMAGES))
)
FILES = {
    "page.html": PAGE,
    "style.css": "body { margin: 0; background: rgb(1, 99, 201); color: white }",
    "script.js": "document.title = 'Loaded';",
} | {f"image-{number}.png": png(colour) for number, colour in enumerate(COLOURS)}


@unittest.skipUnless(TLS, "this build has no TLS")
class Browser(unittest.TestCase):
    def test_a_page_of_twenty_parts(self):
        with serve(files=FILES) as server, Chromium() as browser:
            responses = browser.load(f"{server.url}/page.html")
            expected = {f"{server.url}/{name}" for name in FILES}
            responses = {url: one for url, one in responses.items() if not url.endswith("/favicon.ico")}
            self.assertEqual(set(responses), expected)
            self.assertEqual({one["status"] for one in responses.values()}, {200})
            self.assertEqual({one["protocol"] for one in responses.values()}, {"h2"})
            self.assertEqual(len({one["connectionId"] for one in responses.values()}), 1, "not one connection for all")
            secured = responses[f"{server.url}/page.html"]["securityDetails"]
            self.assertEqual(secured["protocol"], "TLS 1.3")
            group = secured.get("keyExchangeGroup")
            print(f"[{group}, {secured['cipher']}] ", end="", flush=True)
            if PEER == "bulkhead":
                self.assertEqual(group, "X25519MLKEM768")
            self.assertEqual(browser.evaluate("document.title"), "Loaded")
            shown = browser.evaluate("[...document.images].filter(one => one.complete && one.naturalWidth == 48).length")
            self.assertEqual(shown, IMAGES)
            browser.screenshot(PICTURE)
        seen = {pixel for row in pixels(PICTURE.read_bytes()) for pixel in row}
        self.assertEqual([colour for colour in [(1, 99, 201), *COLOURS] if colour not in seen], [], "the picture lacks colours")

    @ours
    def test_a_websocket_on_the_same_connection(self):
        page = "<!doctype html><title>Silent</title><script src=script.js></script>"
        with serve(programs=("socket",), files={"page.html": page, "script.js": SCRIPT}) as server, Chromium() as browser:
            browser.load(f"{server.url}/page.html")
            ended = lambda: browser.evaluate("document.title").startswith("Closed")
            self.assertTrue(until(ended, 60), browser.evaluate("document.title"))
            self.assertEqual(browser.evaluate("document.title"), "Closed 4001 true, 3 of 3 as sent")
            logged = lambda: '"GET /socket HTTP/2.0" 200 ' in server.log("main.access")
            self.assertTrue(until(logged, 10), server.log("main.access"))
            self.assertNotIn(" 101 ", server.log("main.access"), "over HTTP/1.1")


    @ours
    def test_a_websocket_of_the_sdk(self):
        page = "<!doctype html><title>Talk</title><script src=talk.js></script>"
        with serve(programs=("talk",), files={"page.html": page, "talk.js": TALK}) as server, Chromium() as browser:
            browser.load(f"{server.url}/page.html")
            talk = f"wss://main.test:{server.tls_port}/talk"
            self.assertEqual(browser.evaluate(f"open({talk!r})"), "open echo.v1")
            self.assertEqual(browser.evaluate("echo(['hello', 'ä'.repeat(50000), '', new Uint8Array(1000000).map((_, at) => at * 7)])"), "4 of 4")
            # A service that goes says so, and the page comes back to its successor.
            server.relaunch("main/talk")
            self.assertEqual(browser.evaluate("ended"), "1001 true")
            self.assertEqual(browser.evaluate(f"open({talk!r})"), "open echo.v1")
            self.assertEqual(browser.evaluate("echo(['again'])"), "1 of 1")
            # A page of another origin gets none, though it is of the same server; its WebSocket has a connection of its
            # own.
            refused = f"wss://localhost:{server.tls_port}/talk"
            self.assertEqual(browser.evaluate(f"open({refused!r})"), "never open 1006")
            self.assertTrue(until(lambda: '"GET /talk HTTP/1.1" 403 ' in server.log("main.access"), 10), server.log("main.access"))
            browser.load(f"{server.local_url}/page.html")
            self.assertEqual(browser.evaluate(f"open({talk!r})"), "never open 1006")
            self.assertEqual(browser.evaluate(f"open({refused!r})"), "open echo.v1", "its own")


#: What a page does with a WebSocket: `ended` is what has become of the last one.
TALK = '''
let both, ended;
const open = (url) => new Promise((told) => {
    both = new WebSocket(url, ["echo.v0", "echo.v1"]);
    both.binaryType = "arraybuffer";
    let opened = false;
    both.onopen = () => { opened = true; told(`open ${both.protocol}`); };
    ended = new Promise((end) => {
        both.onclose = (event) => { opened ? end(`${event.code} ${event.wasClean}`) : told(`never open ${event.code}`); };
    });
});
const text = (one) => typeof one == "string" ? one : new Uint8Array(one).join();
const echo = (sent) => new Promise((told) => {
    let came = 0, same = 0;
    both.onmessage = (event) => {
        same += text(event.data) == text(sent[came]);
        if (++came == sent.length) told(`${same} of ${came}`);
    };
    sent.forEach((one) => both.send(one));
});
'''

#: Sends three messages, waits until each has come back, and closes.
SCRIPT = '''
const sent = ["hello", "x".repeat(100000), new Uint8Array(1000000).map((_, at) => at * 7)];
const both = new WebSocket(`wss://${location.host}/socket`);
let came = 0, same = 0;
const text = (one) => typeof one == "string" ? one : new Uint8Array(one).join();
both.binaryType = "arraybuffer";
both.onopen = () => sent.forEach((one) => both.send(one));
both.onmessage = (event) => {
    same += text(event.data) == text(sent[came]);
    if (++came == sent.length) both.close(4001);
};
both.onclose = (event) => document.title = `Closed ${event.code} ${event.wasClean}, ${same} of ${came} as sent`;
'''


if __name__ == "__main__":
    unittest.main()
