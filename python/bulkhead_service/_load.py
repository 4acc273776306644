"""Finding an application by its name, and what a path is to it.

Runs in: a service. Sees: the operator's words. Never: a client's.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any
from urllib.parse import unquote_to_bytes

from .context import ServiceError
from .request import Request


def load(name: str) -> Any:
    """What `module:name` or `module:name.attribute` stands for; the name is `app` if there is none."""
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(error.name + ".")):
            looked = ", ".join(folder for folder in sys.path if folder)
            raise ServiceError(
                f"there is no module `{error.name}` for the application `{name}`; it was looked for in {looked}, of which the "
                "service sees what `read` and `libraries` name"
            ) from None
        raise
    for part in (path or "app").split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ServiceError(f"the module `{module}` has no `{part}`; name the application as `{module}:NAME`") from None
    return found


def checked_root(root: str) -> str:
    """The path below which an application is told to be: begins with `/` and does not end so, or is empty."""
    root = root.rstrip("/")
    if root and not root.startswith("/"):
        raise ServiceError(f"the root path `{root}` does not begin with `/`")
    return root


def decoded_path(request: Request) -> bytes:
    """The path without its percent signs."""
    return unquote_to_bytes(request.path.encode("latin-1"))


def host_and_port(request: Request) -> tuple[str, int]:
    """What the client has called the server."""
    default = 443 if request.scheme == "https" else 80
    host, _, port = request.headers.get("host", "").rpartition(":")
    if host and port.isdigit() and len(port) < 6:
        return host, int(port)
    return request.headers.get("host") or "localhost", default
