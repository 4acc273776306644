"""Two sites with the service `tools`, which tries what the SDK has for services: relayed by its site's worker, and with clients' own
connections."""

from harness import Server, service, site


class ToolsServer(Server):
    """A server with both: `main.test` relays, `direct.test` hands over."""

    def __init__(self, **settings):
        relayed = service("tools", "/tools", command=["bin/tools"])
        direct = service("direct", "/tools", takes=True, command=["bin/direct"])
        super().__init__([site("main", [relayed]), site("direct", [direct])], ("tools",), **settings)
        self.copy_program("tools", "direct")
