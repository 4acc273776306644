"""What a reload replaces for each key is what docs/configuration.md says in its column *reload*."""

import json
import re
import unittest

from harness import TOP, free_port, rootless_too, service, site, toml
from reloading import Reloading
from tls_server import Tls

#: For each table its keys, each with a value that differs from what the server runs with.
CHANGES = {
    "[server]": {
        "state_dir": "other-state", "run_dir": "other-run", "log_dir": "other-log", "gates": 3, "isolation": "degraded",
        "start": "on-demand", "idle_stop": "3m",
    },
    "[log]": {
        "access_format": "json", "flush": "77ms", "daily": True, "error_file": "other.log", "error_syslog": True,
        "access_bytes": "1MiB",
    },
    "[restart]": {"broken_after": 7, "within": "77s", "backoff_max": "1s", "hang_after": "77s"},
    "[limits]": {
        "head_bytes": "16KiB", "head_timeout": "7s", "body_bytes": "7MiB", "idle_timeout": "7s", "start_timeout": "7s",
        "drain_timeout": "7s", "connections": 777,
    },
    "[conditioning]": {
        "first_byte_timeout": "7s", "head_timeout": "7s", "body_min_rate": "7B/s", "response_min_rate": "7B/s",
        "priority": "fifo", "share_max": {"/24": 0.05}, "share_max_v6": {"/56": 0.05}, "checks": "lenient",
        "exempt": ["10.0.0.0/8"], "rate_max": "777/s", "ban_after": 7, "ban_time": "7s", "filters": [["bin/probe"]],
    },
    "[[listen]]": {"shared_connections": True, "h2c": True},
    "[[site]]": {
        "host": ["main.test", "second.test"], "root": "other", "index": ["other.html"], "redirect": "/other/",
        "follow_links": ["other"], "cache_control": "7s", "stat_interval": "7s", "compress": False,
        "error_page": {404: "404.html"}, "listing": True, "send_hidden": [".x"], "send_sources": [".php"],
        "media_types": {".x": "text/x"}, "headers": {"X-A": "b"}, "request_headers": {"X-A": "b"},
        "hide_headers": ["X-A"], "allow": ["127.0.0.1"], "deny": ["10.0.0.1"], "body_bytes": "7MiB",
        "idle_timeout": "7s", "connections": 77, "access_log": "third.access.log", "workers": 2, "max_requests": 777,
        "max_age": "77s", "recycle_memory": "77MiB", "start": "on-demand", "idle_stop": "7m",
        "route": [{"path": "/x", "redirect": "/y"}],
    },
    "[[site.service]]": {
        "path": "/other", "command": ["bin/probe", "more"], "read": ["other"], "libraries": ["/usr/lib"],
        "memory_max": "777MiB", "memory_high": "77MiB", "processes_max": 77, "cpu_percent": 77, "network": ["udp"],
        "files": True, "jit": True, "core_max": "1MiB", "takes_connections": True, "requests": 77,
        "environment": {"A": "b"}, "workers": 2, "max_requests": 777, "max_age": "77s", "recycle_memory": "77MiB",
    },
    "[tls]": {
        "min_version": "1.3", "tamper_ban": "0", "tamper_exempt": ["10.0.0.0/8"], "hsts": "", "reread": "7m",
        "resumption": "off", "ocsp": False, "ocsp_ports": [80, 8080],
    },
}
#: Other keys of these tables, each with the reason why nothing is changed there.
NOT_CHANGED = {
    "user_range": "the server's uids are its own; tests of ranges change it",
    "danger_without": "needs another value of `isolation`, which takes a restart",
    "rate_burst": "needs `rate_max`",
    "address": "another address is another listener",
    "tls": "needs a certificate",
    "redirect_to_https": "needs a listener with `tls`",
    "unfiltered": "needs `tls` or `h2c`",
    "proxy_protocol": "needs `trusted`", "trusted": "needs `proxy_protocol`",
}


def said():
    """What the page says of each key, by table and key."""
    page = TOP.joinpath("docs/configuration.md").read_text()
    words = {}
    for table, lines in re.findall(r"<!-- keys of (.*?) -->\n(.*?)<!-- end -->", page, re.DOTALL):
        for line in lines.splitlines()[2:]:
            cells = line.split(" | ")
            words |= {(table, key): cells[3] for key in re.findall(r"`([^`]+)`", cells[0])}
    return words


def planned(server, words):
    """The word for what a reload would do now; `words` are those for no site, for some and for all that there are."""
    answer = server.command("reload", "--run-dir", "run", "--json", "--dry-run")
    if answer.returncode:
        return "restart" if "restart the server" in answer.stderr else answer.stderr
    effects = json.loads(answer.stdout)["processes"]
    replaced = {effect["process"] for effect in effects if effect["action"] != "update"}
    roles = {process.split()[0] for process in replaced}
    for word in {"filter", "stapler"} & roles:
        return {"filter": "filters"}.get(word, word)
    of_sites = words[sum(process.startswith("site ") for process in replaced)]
    if not replaced:
        updated = {effect["process"].split()[0] for effect in effects}
        return {word for word, role in (("logger", "logger"), ("listeners", "gate")) if role in updated} | {"nothing"}
    return ", ".join(word for word in ("gates" if "gate" in roles else "", of_sites) if word)


@rootless_too
class Keys(unittest.TestCase):
    def assert_said(self, table, key, plan):
        word = SAID[table, key]
        self.assertTrue(word == plan or isinstance(plan, set) and word in plan, f"{key} of {table}: {word}, and {plan}")

    def test_what_is_replaced_is_what_the_page_says(self):
        sites = [site("main", [service("probe")]), site("other", [service("probe")])]
        with Reloading(sites, files={"main/404.html": "x"}) as server:
            for table, keys in CHANGES.items():
                for key, value in keys.items() if table != "[tls]" else ():
                    main, settings = dict(sites[0]), {}
                    match table:
                        case "[[site]]":
                            main[key] = value
                        case "[[site.service]]":
                            main["services"] = [main["services"][0] | {key: value}]
                        case "[[listen]]":
                            pass
                        case _:
                            settings = {table.strip("[]"): {key: value}}
                    server.write_config([main, sites[1]], **settings)
                    if table == "[[listen]]":
                        line = f"[[listen]]\n{key} = {toml(value)}\n"
                        server.config.write_text(server.config.read_text().replace("[[listen]]\n", line, 1))
                    self.assert_said(table, key, planned(server, {0: "", 1: "site", 2: "all sites"}))
            server.write_config(sites, listeners=[free_port()])
            self.assert_said("[[listen]]", "address", planned(server, {0: ""}))

    def test_tls(self):
        with Tls() as server:
            before = server.config.read_text()
            for key, value in CHANGES["[tls]"].items():
                line = f"{key} = {toml(value)}\n"
                others = re.sub(rf"\n{key} = .*\n", "\n", before)
                server.config.write_text(others.replace("[tls]\n", f"[tls]\n{line}", 1))
                self.assert_said("[tls]", key, planned(server, {0: "", 2: "sites with TLS"}))

    def test_each_key_is_changed_or_belongs_to_a_site(self):
        left = {key for table, key in SAID if key not in CHANGES.get(table, {}) and SAID[table, key] != "site"}
        self.assertEqual(left, set(NOT_CHANGED))


SAID = said()
