"""Everything of a configuration that is counted: where docs/internals/limits.md has its limit, or in which batches it is
handled, and how a configuration with so many of it is made."""

import re
from pathlib import Path

from harness import TOP

PAGE = TOP / "docs" / "internals" / "limits.md"
#: One certificate and its key, and a key that belongs to another one: `Folder.write_keys` puts them there.
OWN, OTHER = "own", "other"
LISTEN = '[[listen]]\naddress = "127.0.0.1:8443"\n'
UIDS = "200001-299999"
GOOD = "$2y$04$CCCCCCCCCCCCCCCCCCCCCu6Ry1Yy8D0LpHlAr5zQ3LVvY3YF8XPqS"


def rows():
    """The rows of the page: what each is about, and its cells behind that."""
    lines = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return {cells[0]: cells[1:] for cells in lines if len(cells) == 4}


def number(row, at=0):
    """The number of a row whose first words are these, or the `at`th of several: the most, if it has bounds."""
    found = [cells for what, cells in rows().items() if what.startswith(row)]
    if len(found) != 1:
        raise AssertionError(f"limits.md has {len(found)} rows that begin with `{row}`")
    cell = re.sub(r"`[^`]*`: ?", "", found[0][0].split("; ")[at])
    digits, unit = re.findall(r"(\d[\d,]*)(?: (KiB|MiB))?", cell)[1 if " to " in cell else 0]
    return int(digits.replace(",", "")) * {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]


def listed(names):
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def site(name, more="", root="main"):
    return f'\n[[site]]\nname = "{name}"\nhost = ["{name}.test"]\nroot = "{root}"\n{more}'


def sites(count, more=lambda number: "", head=""):
    """So many sites, with what each has besides."""
    return f'{LISTEN}{head}\n[server]\nuser_range = "{UIDS}"\n' + "".join(site(f"s{n}", more(n)) for n in range(count))


def one(more, head=""):
    """A configuration with one site."""
    return sites(1, lambda _: more, head)


def tls(text):
    return text.replace(LISTEN, f"{LISTEN}tls = true\n", 1)


def networks(count):
    return listed(f"10.{n // 256}.{n % 256}.0/24" for n in range(count))


def certificates(count, bad):
    """A file with a certificate and its key for each of so many sites."""
    files = {f"c{n}.pem": OWN + (OTHER if n in bad else OWN) for n in range(count)}
    return tls(sites(count, lambda n: f'certificates = ["c{n}.pem"]\n')), files


def separate_keys(count, bad):
    """The same with two files for each."""
    files = {f"c{n}.crt": OWN for n in range(count)} | {f"c{n}.key": "key " + (OTHER if n in bad else OWN) for n in range(count)}
    return tls(sites(count, lambda n: f'certificate = "c{n}.crt"\nkey = "c{n}.key"\n')), files


def users(count, bad):
    """A file of users for each of so many sites."""
    files = {f"u{n}": f"ann:{'plain' if n in bad else GOOD}\n" for n in range(count)}
    return sites(count, lambda n: f'[[site.route]]\npath = "/"\nauth = {{ users = "u{n}" }}\n'), files


def plain_sites(count, bad):
    """So many sites, of which some have no folder."""
    return sites(0) + "".join(site(f"s{n}", root="none" if n in bad else "main") for n in range(count)), {}


def services(count, bad):
    """So many services of one site, of which some have no program."""
    program = lambda number: "none" if number in bad else "program"
    text = (f'[[site.service]]\nname = "v{n}"\npath = "/v{n}"\ncommand = ["bin/{program(n)}"]\n' for n in range(count))
    return one("".join(text)), {}


def routes(count, bad):
    """So many routes of one site, of which some lead into no folder."""
    folder = lambda number: "none" if number in bad else "main"
    return one("".join(f'[[site.route]]\npath = "/r{n}/"\nalias = "{folder(n)}"\n' for n in range(count))), {}


def hosts(count, bad):
    """So many hosts of one site, of which some are none."""
    names = (f"h{n}..test" if n in bad else f"h{n}.test" for n in range(count))
    return sites(1).replace('host = ["s0.test"]', f"host = {listed(names)}"), {}


def listeners(count, bad):
    """So many listeners, of which some have no address."""
    port = lambda number: "x" if number in bad else 10_000 + number
    text = "".join(f'[[listen]]\naddress = "127.0.0.1:{port(n)}"\n' for n in range(count))
    return text + sites(1).removeprefix(LISTEN), {}


def statements(count, _=()):
    """So many statements in one file."""
    text = "".join(f"-- name: n{n} :many\n-- services: all\nSELECT 1;\n\n" for n in range(count))
    return data(text)


def parameters(count, _=()):
    """A statement with so many parameters."""
    words, uses = (", ".join(form.format(n=n) for n in range(count)) for form in ("p{n} int", ":p{n}"))
    return data(f"-- name: n :many\n-- services: all\n-- params: {words}\nSELECT {uses};\n")


def steps(count, _=()):
    """A transaction of so many statements."""
    text = "".join(f"-- name: n{n} :exec\n-- services: all\nUPDATE t SET a = 1;\n\n" for n in range(count))
    return data(f"{text}-- transaction: all\n-- services: all\n-- statements: {', '.join(f'n{n}' for n in range(count))}\n")


def data(text):
    about = '[[site.data]]\nname = "d"\nstatements = "d.sql"\n'
    about += '[[site.service]]\nname = "all"\npath = "/"\ncommand = ["bin/program"]\n'
    return one(f'{about}data = ["d"]\n'), {"d.sql": text}


def with_templates(more=""):
    """A site with templates, and a service that has them."""
    pages = '[[site.service]]\nname = "all"\npath = "/"\ncommand = ["bin/program"]\ntemplates = true\n'
    return one(f'[site.templates]\nfolder = "templates"\n{more}{pages}')


def templates(count, _=()):
    """So many templates of one site."""
    return with_templates(), {f"templates/t{n}.html": "{{ 1 }}" for n in range(count)}


def template_folders(count, _=()):
    """A template so deep in its folder."""
    return with_templates(), {"templates/" + "f/" * count + "t.html": "x", "templates/t.html": "x"}


def values(count, _=()):
    """So many public values."""
    each = ", ".join(f"v{n} = 1" for n in range(count))
    return with_templates(f"values = {{ {each} }}\n"), {"templates/t.html": "x"}


def site_certificates(count, _=()):
    names = [f"c{n}.pem" for n in range(count)]
    return tls(one(f"certificates = {listed(names)}\n")), dict.fromkeys(names, OWN * 2)


def revoked(count, _=()):
    names = [f"l{n}" for n in range(count)]
    text = f'certificates = ["c.pem"]\nclient_ca = "ca.pem"\nclient_crl = {listed(names)}\n'
    return tls(one(text)), {"c.pem": OWN * 2, "ca.pem": OWN, **dict.fromkeys(names, "list")}


def ports(count, _=()):
    return one("", f"[tls]\nocsp_ports = {list(range(80, 80 + count))}\n"), {}


def exempt(count, _=()):
    return one("", f"[conditioning]\nexempt = {networks(count)}\n"), {}


def filters(count, _=()):
    each = ", ".join(['["bin/program"]'] * count)
    return one("", f"[conditioning]\nfilters = [{each}]\n"), {}


def allowed(count, _=()):
    return one(f'[[site.route]]\npath = "/"\nallow = {networks(count)}\n'), {}


def linked(count, _=()):
    names = [f"f{n}" for n in range(count)]
    return one(f"follow_links = {listed(names)}\n"), {f"{name}/x": "x" for name in names}


def tried(count, _=()):
    names = [f"/f{n}.html" for n in range(count - 1)]
    return one(f'[[site.route]]\npath = "/"\ntry_files = {listed([*names, "=404"])}\n'), {}


def workers(count, _=()):
    return one(f"workers = {count}\n"), {}


def gates(count, _=()):
    return sites(1).replace("[server]\n", f"[server]\ngates = {count}\n"), {}


def long_file(count, _=()):
    text = sites(1)
    return text + "#" * (count - len(text)), {}


#: What has a limit: the row of the page, which of its numbers, and the configuration with so many.
LIMITED = {
    "bytes of a file": ("bytes of a file of the configuration", 0, long_file),
    "certificates of a site": ("certificates of a site; of a chain", 0, site_certificates),
    "lists of revoked certificates": ("lists of revoked certificates of a site", 0, revoked),
    "ports of responders": ("ports of OCSP responders", 0, ports),
    "exempt networks": ("exempt networks; filters", 0, exempt),
    "filters": ("exempt networks; filters", 1, filters),
    "networks of a route": ("networks of an `allow` or a `deny`", 0, allowed),
    "folders of links": ("folders that links may lead into", 0, linked),
    "try_files": ("paths of `try_files`", 0, tried),
    "workers": ("processes of a site or a service", 0, workers),
    "gates": ("gates of a server", 0, gates),
    "statements": ("file of statements, bytes", 1, statements),
    "parameters": ("parameters of a statement", 0, parameters),
    "steps": ("parameters of a statement", 1, steps),
    "templates": ("templates of a site", 0, templates),
    "folders of templates": ("folders in the folder of templates", 0, template_folders),
    "public values": ("public values of a site", 0, values),
}
#: What has none, and is handled in batches: the rows of these, and the configuration with so many, of which some are
#: wrong.
SIGNER = ("files that one `signer check` reads", 0)
NUMBERS = ("numbers in a message", 0)
BATCHED = {
    "files with a certificate and its key": (SIGNER, 1, certificates),
    "certificates with a key elsewhere": (SIGNER, 2, separate_keys),
    "files of users": (SIGNER, 1, users),
    "sites": (NUMBERS, 1, plain_sites),
    "services": (NUMBERS, 1, services),
    "routes": (NUMBERS, 1, routes),
    "hosts": (NUMBERS, 1, hosts),
    "listeners": (NUMBERS, 1, listeners),
}
#: Rows about what is counted in a configuration begin with one of these words.
COUNTED = re.compile(
    r"(?:certificates|lists of revoked|sites|files of `include`|services|routes|statements|file of statements|"
    r"parameters of a statement|templates|users|listeners|gates|networks|exempt networks|ports of|folders|paths of|"
    r"public values|processes of a site)\b")
#: Those of them that are tried elsewhere, or cost too much here.
ELSEWHERE = {
    "gates are told of clients": "nothing of a configuration; `attack` tries it",
    "sites whose quota is remembered": "nothing of a configuration; `logger` tries it",
    "files of `include`": "a test would make fifty thousand files",
    "folders that a look at many": "nothing of a configuration; `config` tries it",
}


class Folder:
    """A folder with a configuration; `own`, `other` and `revoked` are what the words of this file stand for."""

    def __init__(self, path, own, other, revoked=b""):
        self.path = Path(path)
        (cert, key), (_, misfit) = own, other
        self.known = {OWN: cert, OWN * 2: cert + key, OWN + OTHER: cert + misfit, "key " + OWN: key, "key " + OTHER: misfit,
                      "list": revoked}

    def write(self, name, content):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o600 if name.endswith((".pem", ".key")) else 0o644)

    def fill(self, text, files):
        for name, content in files.items():
            self.write(name, self.known.get(content) or content.encode())
        self.write("bulkhead.toml", text.encode())
