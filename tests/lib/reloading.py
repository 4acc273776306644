"""A server whose configuration is written again while it runs."""

import json

from harness import Server, configuration


class Reloading(Server):
    """A server whose configuration is written again."""

    def write_config(self, sites, listeners=(), text="", **settings):
        for about in sites:
            # One that is there may be on its way to a client, who would get a part of it.
            if "root" in about and not (self.folder / about["root"] / "index.html").exists():
                self.write(f"{about['root']}/index.html", f"<h1>{about['root']}</h1>\n")
        more = "".join(f'\n[[listen]]\naddress = "127.0.0.1:{port}"\n' for port in listeners)
        self.config.write_text(self.with_uids(configuration(self.port, sites, settings) + more + text))

    def reload(self, sites, **more):
        """Writes the configuration and has it read; what `bulkhead` says if it refuses."""
        self.write_config(sites, **more)
        answer = self.command("reload", "--run-dir", "run")
        return answer.stderr if answer.returncode else None

    def plan(self, *words):
        """What `bulkhead reload` says in JSON."""
        answer = self.command("reload", "--run-dir", "run", "--json", *words)
        if answer.returncode:
            raise AssertionError(answer.stderr)
        return json.loads(answer.stdout)

    def pids(self, *titles):
        return [[process.pid for process in self.processes(title)] for title in titles]
