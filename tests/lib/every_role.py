"""A server with a process of every role, and a channel of every kind between them."""

import tempfile
from pathlib import Path

from database_servers import PASSWORD, Redis
from harness import Server, configuration, free_port, service, site
from tls_server import certificate

#: The commands of its filters, of which the first passes on to the second.
FILTERS = ("bin/pass", "bin/pass-on")
#: A port at which nobody listens.
NOBODY_AT = "127.0.0.1:1"


def every_role(case, kind=Server, **settings):
    """The server: a site with services of every kind, and one with a path below its host, to which it relays under TLS. The
    database of another's lasts as long as the test case (a class). `kind` is what it is built on."""
    away = case.enterClassContext(Redis())
    data = [{"name": "catalog", "statements": "catalog.sql"}, {"name": "away", "statements": "away.sql", **away.settings()}]
    sites = [
        site("main", [
            service("probe"),
            service("direct", "/direct", takes=True),
            service("net", "/net", network=["tcp:1"], data=["catalog", "away"]),
            service("pages", "/pages", templates=True),
        ], certificates=["main.pem"], route=[{"path": "/behind/", "upstream": NOBODY_AT}], templates={"folder": "templates"},
            data=data),
        site("below", [], host=["main.test"], path="/below/"),
        site("other"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        pem = b"".join(certificate(Path(folder), "main", "ec", "main.test")).decode()
    files = {
        "main.pem": pem, "templates/page.html": "page\n", "below/below/index.html": "below\n",
        "catalog.sql": "-- name: one :one\n-- services: net\nSELECT 1;\n",
        "away.sql": "-- name: one :one\n-- services: net\nGET one\n", "password": PASSWORD + "\n",
    }
    tls = f'\n[[listen]]\naddress = "127.0.0.1:{free_port()}"\ntls = true\nunfiltered = true\n'
    settings = {"conditioning": {"filters": [[command] for command in FILTERS]}} | settings
    text = lambda plain: configuration(plain, sites, settings) + tls
    server = kind(sites, ("probe", "pages", "pass"), text=text, files=files)
    for name in ("direct", "net"):
        server.copy_program("probe", name)
    server.copy_program("pass", "pass-on")
    return server


def everything(count):
    """So many sites of which each has a process of every kind that is there for one site; what they name, and a listener for TLS."""
    with tempfile.TemporaryDirectory() as folder:
        pem = b"".join(certificate(Path(folder), "all", "ec", *(f"s{number}.test" for number in range(count)))).decode()
    files, sites = {"all.pem": pem}, []
    for number in range(count):
        name = f"s{number}"
        probe = service("probe", network=["tcp:1"], data=["catalog"], templates=True)
        sites.append(site(name, [probe], certificates=["all.pem"], route=[{"path": "/behind/", "upstream": NOBODY_AT}],
                          templates={"folder": f"templates-{name}"}, data=[{"name": "catalog", "statements": "catalog.sql"}]))
        files[f"templates-{name}/page.html"] = "page\n"
    files["catalog.sql"] = "-- name: one :one\n-- services: probe\nSELECT 1;\n"
    return sites, files, f'\n[[listen]]\naddress = "127.0.0.1:{free_port()}"\ntls = true\n'
