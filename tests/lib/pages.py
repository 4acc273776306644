"""A site with templates, services that render them, and readers that look whether a page is all of one version."""

import json
import re
import threading
import urllib.parse

import client
from harness import service, site
from reloading import Reloading

#: What says of which version a template is.
MARK = re.compile(r"\[(\d+)\]")
#: How many marks a page has, rendered twice.
MARKS = 10


def version(number):
    """All templates of a version, by their names."""
    mark = f"[{number}]"
    return {
        "page.html": f"{{% extends 'base.html' %}}{{% block main %}}{mark}{{{{ x }}}}{{% endblock %}}",
        "base.html": f"{mark}{{% include 'head.html' %}}{{% block main %}}{{% endblock %}}{{% include 'part/foot.html' %}}",
        "head.html": f"{mark}{{% import 'part/menu.html' as menu %}}{{{{ menu.entry() }}}}",
        "part/menu.html": f"{{% macro entry() %}}{mark}{{% endmacro %}}",
        "part/foot.html": f"{mark}{{{{ values.company }}}}",
        "mail.txt": f"{mark}{{{{ x }}}}",
    }


def renders(name="pages", **more):
    """A service that renders whatever template a test names."""
    return service(name, f"/{name}", **{"command": ["bin/pages"], "templates": True} | more)


def page_site(name="main", services=None, company="ACME", folder="templates", **more):
    """A site with templates."""
    services = [renders()] if services is None else services
    return site(name, services, templates={"folder": folder, "values": {"company": company}}, **more)


class Pages(Reloading):
    """A server with a site `main`, whose service `pages` has its templates."""

    def __init__(self, services=None, sites=None, text=None, **settings):
        files = {f"templates/{name}": source for name, source in version(1).items()}
        sites = sites or [page_site(services=services), site("fine")]
        super().__init__(sites, programs=("pages", "probe"), files=files, **settings)

    def page(self, of="pages", how="page", host="main.test", **words):
        """The status and the text of a page."""
        answer = self.get(f"/{of}/{how}?{urllib.parse.urlencode(words)}", host)
        return answer.status, answer.body.decode()

    def of_version(self, of="pages"):
        """The versions that a page is made of."""
        status, page = self.page(of)
        assert status == 200, (status, page)
        return set(map(int, MARK.findall(page)))

    def write_version(self, number, folder="templates"):
        for name, source in version(number).items():
            self.write(f"{folder}/{name}", source)

    def publish(self, number, *names):
        """Writes a version into the folder and publishes it."""
        self.write_version(number)
        return self.republish(*names)

    def republish(self, *words):
        return self.command("republish", *words, "--run-dir", "run", timeout=40)

    def published(self, *names):
        """What `republish --json` says of the sites."""
        return json.loads(self.republish(*names, "--json").stdout)["sites"]

    def publishers(self):
        return sorted(process.title for process in self.processes("publisher"))


class Readers:
    """Clients that read a page over and over; each page must be of one version."""

    def __init__(self, port, target="/pages/page?wait=2", host="main.test", count=6, close=False):
        self.port, self.target, self.host, self.close = port, target, host, close
        self.pages, self.wrong, self.seen, self.is_over = 0, [], set(), False
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self._read, daemon=True) for _ in range(count)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        for thread in self.threads:
            thread.join(20)

    def _read(self):
        while not self.is_over:
            try:
                answer = client.get(self.port, self.target, self.host)
                self._look(answer.status, answer.body.decode())
            except OSError as error:
                self._look(0, repr(error))

    def _look(self, status, page):
        marks = MARK.findall(page)
        with self.lock:
            self.pages += 1
            self.seen.update(map(int, marks))
            if status != 200 or len(set(marks)) != 1 or len(marks) != MARKS:
                self.wrong.append((status, page[:200]))

    def assert_clean(self, case, at_least=100):
        """No page failed, and none was of two versions."""
        case.assertEqual(self.wrong[:3], [])
        case.assertGreater(self.pages, at_least)
