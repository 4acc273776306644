"""The pages of the demo in a browser: narrow and wide, light and dark. The pictures are left in target/demo."""

import itertools
import shutil
import subprocess
import unittest

from chromium import Chromium
from harness import TOP, Server, program

CONFIG = TOP / "examples/packages/demo.toml"
PICTURES = TOP / "target/demo"
PAGES = {
    "first": "/", "search": "/search?q=perl", "package": "/package/bash", "section": "/sections/utils.html", "crash": "/crash",
    "breakout": "/breakout", "missing": "/no/such/page",
}
WIDTHS = (360, 768, 1280)
SCHEMES = ("light", "dark")
#: The texts whose contrast with what is behind them is below 4.5, which is what WCAG 2 asks for.
FAINT = """(() => {
  const channels = (text) => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255)
    .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const found = channels(getComputedStyle(one).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return getComputedStyle(document.documentElement).colorScheme && matchMedia("(prefers-color-scheme: dark)").matches
      ? [18, 18, 18] : [255, 255, 255];
  };
  const texts = [...document.body.querySelectorAll("*")].filter((one) => one.offsetParent
    && [...one.childNodes].some((child) => child.nodeType == 3 && child.data.trim()));
  return texts.map((one) => {
    const [a, b] = [light(channels(getComputedStyle(one).color)), light(behind(one))].sort((a, b) => b - a);
    return [one.outerHTML.slice(0, 80), (a + 0.05) / (b + 0.05)];
  }).filter(([, contrast]) => contrast < 4.5);
})()"""


def configuration(port):
    text = CONFIG.read_text()
    changed = text.replace('"127.0.0.1:8080"', f'"127.0.0.1:{port}"')
    assert changed != text, "the address is not found"
    return changed


@unittest.skipUnless(shutil.which("chromium"), "chromium is not installed")
class DemoPages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server([], ("search", "package", "crash", "breakout"), text=configuration)
        words = [program("make-site"), cls.server.folder, "--status", TOP / "examples/packages/sample-status"]
        subprocess.run(words, check=True, capture_output=True)
        cls.enterClassContext(cls.server)
        cls.browser = cls.enterClassContext(Chromium())

    def at(self, path):
        return f"http://localhost:{self.server.port}{path}"

    def show(self, scheme, width):
        view = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 700}
        self.browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.browser.ask("Emulation.setDeviceMetricsOverride", **view)

    def test_each_page_fits_and_can_be_read(self):
        for scheme, width, (name, path) in itertools.product(SCHEMES, WIDTHS, PAGES.items()):
            with self.subTest(page=name, width=width, scheme=scheme):
                self.show(scheme, width)
                self.browser.load(self.at(path))
                self.browser.screenshot(PICTURES / f"{name}-{width}-{scheme}.png")
                wide = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"
                self.assertLessEqual(self.browser.evaluate(wide), width, "it is to be scrolled sideways")
                self.assertEqual(self.browser.evaluate(FAINT)[:5], [])
                paper = self.browser.evaluate("getComputedStyle(document.body).backgroundColor")
                self.assertEqual(paper, "rgb(255, 255, 255)" if scheme == "light" else "rgb(19, 26, 33)")

    def test_a_page_that_is_missing_looks_like_the_others(self):
        got = self.browser.load(self.at("/no/such/page"))
        self.assertEqual(got[self.at("/no/such/page")]["status"], 404)
        self.assertEqual(got[self.at("/style.css")]["status"], 200)
        self.assertEqual(self.browser.evaluate("document.querySelector('h1').textContent"), "Not found")
        other = self.server.get("/nothing", "other.test")
        self.assertEqual(other.status, 404)
        self.assertIn("style.css", other.text)

    def test_icons(self):
        for host in ("localhost", "other.test"):
            for path in ("/", "/favicon.svg", "/style.css"):
                self.assertEqual(self.server.status(path, host), 200, f"{host}{path}")
        icon = self.server.get("/favicon.ico", "localhost")
        self.assertEqual((icon.status, icon.headers["content-type"]), (200, "image/svg+xml"))
        for name, path in PAGES.items():
            self.assertIn('<link rel="icon"', self.server.get(path, "localhost").text, name)

    def test_what_came_of_an_attempt_is_of_three_kinds(self):
        self.browser.load(self.at("/breakout"))
        labels = self.browser.evaluate("[...document.querySelectorAll('.figures li')].slice(0, 3).map(one => one.lastChild.data.trim())")
        self.assertEqual(labels, ["refused", "allowed as intended", "got out"])
        figures = self.browser.evaluate("[...document.querySelectorAll('.figures b')].slice(0, 3).map(one => +one.textContent)")
        rows = self.browser.evaluate("['refused', 'allowed', 'out'].map(kind => document.querySelectorAll(`tr.${kind}[id]`).length)")
        self.assertEqual(figures, rows)
        self.assertGreater(figures[0], 150)
        self.assertGreater(figures[1], 0)
        self.assertEqual(figures[2], 0, self.browser.evaluate("document.querySelector('.verdict').textContent"))
        # Only what got out is red, and only what was refused is green.
        colour = "getComputedStyle(document.querySelector('tr.{} span')).color"
        refused, allowed = (self.browser.evaluate(colour.format(kind)) for kind in ("refused", "allowed"))
        self.browser.evaluate("document.querySelector('tr.allowed').className = 'out'")
        self.assertEqual(len({refused, allowed, self.browser.evaluate(colour.format("out"))}), 3)


if __name__ == "__main__":
    unittest.main()
