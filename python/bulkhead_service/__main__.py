"""Serves an application of WSGI or ASGI as a service of Bulkhead.

Runs in: a service. Sees: the operator's words.
"""

import argparse
import sys

from . import asgi, wsgi
from .context import ServiceError
from .wsgi import THREADS

EXAMPLES = """\
examples, in the configuration of a service:
  command = ["venv/bin/python", "-m", "bulkhead_service", "asgi", "--app-dir", "shop", "main:app"]
  command = ["/usr/bin/python3", "-m", "bulkhead_service", "wsgi", "--threads", "16", "shop.wsgi:application"]

docs/guide/python.md says what the service has to be granted to run them.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python3 -m bulkhead_service", description=__doc__.split("\n", 1)[0], epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("interface", choices=("wsgi", "asgi"), help="what the application speaks")
    parser.add_argument("application", help="where it is: `package.module:name`; the name is `app` if there is none")
    parser.add_argument("--app-dir", metavar="FOLDER", help="where its modules are: a folder of `read`")
    parser.add_argument("--root-path", default="", metavar="PATH", help="what the application is to think it is mounted at")
    parser.add_argument(
        "--threads", type=int, default=THREADS, metavar="COUNT", help="of WSGI: requests that are answered at once (%(default)s)",
    )
    options = parser.parse_args()
    if not 1 <= options.threads <= 1024:
        parser.error(f"--threads is {options.threads}; it is from 1 to 1024")
    if options.app_dir is not None:
        sys.path.insert(0, options.app_dir)
    try:
        if options.interface == "asgi":
            asgi(options.application, root_path=options.root_path)
        wsgi(options.application, root_path=options.root_path, threads=options.threads)
    except ServiceError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
