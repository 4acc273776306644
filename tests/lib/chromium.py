"""A headless Chromium, driven over a pair of pipes with the DevTools protocol."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from queue import Empty, Queue

from secured import key_hash

PATIENCE = 60

#: Moves two descriptors to 3 and 4, from wherever they are, and executes a program.
MOVE = """
import fcntl, os, sys
its_in, its_out = (fcntl.fcntl(int(word), fcntl.F_DUPFD, 10) for word in sys.argv[1:3])
os.dup2(its_in, 3)
os.dup2(its_out, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Chromium:
    """Use it with `with`. It trusts the tests' certificates by their keys, and finds `main.test` on this machine, as well as
    `localhost`, which the applications of this machine find too.
    """

    def __init__(self, more=()):
        self.more = more
        self.profile = tempfile.mkdtemp(prefix="bulkhead-chromium-", dir="/tmp")
        self.number, self.events, self.answers = 0, [], Queue()

    def __enter__(self):
        program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "chromium")
        words = [
            program, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "--disable-gpu",
            "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--disable-extensions", "--disable-default-apps", "--no-proxy-server",
            "--host-resolver-rules=MAP *.test 127.0.0.1, MAP localhost 127.0.0.1, MAP * ~NOTFOUND", "--window-size=800,600", "--hide-scrollbars",
            f"--ignore-certificate-errors-spki-list={key_hash('ecdsa')},{key_hash('rsa')}",
            *(("--no-sandbox",) if os.geteuid() == 0 else ()), *self.more, "about:blank",
        ]
        (its_in, self.out), (self.into, its_out) = os.pipe(), os.pipe()
        # It reads commands from descriptor 3 and writes to 4; Popen can only pass numbers on.
        words = [sys.executable, "-c", MOVE, str(its_in), str(its_out), *words]
        self.said = open(os.path.join(self.profile, "said"), "w+")
        self.process = subprocess.Popen(
            words, pass_fds=(its_in, its_out), stdin=subprocess.DEVNULL, stdout=self.said, stderr=self.said
        )
        os.close(its_in)
        os.close(its_out)
        threading.Thread(target=self._read, daemon=True).start()
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return self

    session = None

    def __exit__(self, *_):
        try:
            self.session = None
            self.ask("Browser.close")
            self.process.wait(10)
        except (OSError, AssertionError, subprocess.TimeoutExpired):
            pass
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        self.said.close()
        shutil.rmtree(self.profile, ignore_errors=True)

    def _read(self):
        kept = b""
        while data := os.read(self.into, 65536):
            *messages, kept = (kept + data).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self.answers.put(message)
                else:
                    self.events.append(message)
                    self._accept_dialog(message)
        self.answers.put(None)

    def _accept_dialog(self, event):
        """Says yes to what a page asks with `confirm` and the like: until then it answers nothing."""
        if event["method"] == "Page.javascriptDialogOpening":
            answer = {"id": 0, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}, "sessionId": self.session}
            os.write(self.out, json.dumps(answer).encode() + b"\0")

    def ask(self, method, **parameters):
        """Gives a command and returns its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            try:
                answer = self.answers.get(timeout=PATIENCE)
            except Empty:
                answer = None
            if answer is None:
                self.said.seek(0)
                raise AssertionError(f"Chromium does not answer {method}; it said:\n{self.said.read()[-2000:]}")
            if answer["id"] == self.number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]

    def load(self, url):
        """Loads a page with all that belongs to it; returns the responses that it got, by their addresses."""
        for domain in ("Network", "Page"):
            self.ask(f"{domain}.enable")
        self.events.clear()
        told = self.ask("Page.navigate", url=url)
        if told.get("errorText"):
            raise AssertionError(f"{url}: {told['errorText']}")
        end = time.monotonic() + PATIENCE
        while not any(event["method"] == "Page.loadEventFired" for event in list(self.events)):
            if time.monotonic() > end:
                raise AssertionError(f"{url} does not load: {self.events[-3:]}")
            time.sleep(0.05)
        return self.responses()

    def responses(self):
        """The responses that came since the last `load` or `submit`, by their addresses."""
        received = [event["params"] for event in list(self.events) if event["method"] == "Network.responseReceived"]
        return {one["response"]["url"]: one["response"] | {"connectionId": one["response"]["connectionId"]} for one in received}

    def evaluate(self, expression):
        """The value of an expression in the page, or of what it promises."""
        told = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise AssertionError(f"{expression}: {told['exceptionDetails']}")
        return told["result"].get("value")

    def until(self, expression):
        """Waits until an expression is true, also across pages; returns its value."""
        end = time.monotonic() + PATIENCE
        while True:
            # Between two pages there is none to ask, and a value that is promised may go with its page.
            with contextlib.suppress(AssertionError):
                if found := self.evaluate(expression):
                    return found
            if time.monotonic() > end:
                text = self.evaluate("location.href + '\\n' + document.title + '\\n' + document.body?.innerText")
                raise AssertionError(f"never true: {expression}\n{text[:2000]}")
            time.sleep(0.05)

    def click(self, selector):
        """Clicks on the first element that fits, as soon as there is one that can be clicked on."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.until(f"{found} && !{found}.disabled && {found}.getAttribute('aria-disabled') != 'true'")
        self.evaluate(f"{found}.click()")

    def fill(self, selector, text):
        """Types into a field, in place of what it has."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.until(f"!!{found}")
        self.evaluate(f"{found}.focus(), {found}.select && {found}.select()")
        self.ask("Input.insertText", text=text)

    def press_enter(self):
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")

    def choose_file(self, selector, path):
        """Gives a file to an `<input type=file>`."""
        self.until(f"!!document.querySelector({json.dumps(selector)})")
        root = self.ask("DOM.getDocument")["root"]["nodeId"]
        node = self.ask("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.ask("DOM.setFileInputFiles", files=[str(path)], nodeId=node)

    def submit(self, selector):
        """Clicks on what leads to another page, and waits until that has loaded."""
        self.evaluate("window.beforeSubmit = true")
        self.events.clear()
        self.click(selector)
        self.until("!window.beforeSubmit && document.readyState == 'complete'")

    def screenshot(self, path):
        """Writes what the window shows, as a PNG."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))
