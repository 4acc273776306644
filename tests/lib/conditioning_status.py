"""What `bulkhead status --conditioning` reports."""

import json


def told(server):
    """What each process says, by its name."""
    answer = server.command("status", "--conditioning", "--config", server.config, "--json")
    assert answer.returncode == 0, answer.stderr
    return {process["name"]: process for process in json.loads(answer.stdout)["processes"]}
