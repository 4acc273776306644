"""The SDK for Python: what a program needs in order to be a service of Bulkhead.

    from bulkhead_service import Response, Service, escape, main

    class Greeter(Service):
        async def init(self, cx):
            self.greeting = cx.option("--greeting")

        async def process(self, request):
            name = request.param("name") or "you"
            return Response.html(f"<p>{escape(self.greeting)}, {escape(name)}!")

    if __name__ == "__main__":
        main(Greeter)

Runs in: a service, under its uid, inside its jail. Sees: requests of clients, whole or in part made up. Never: opens a file
or a socket by name (the service itself may, as far as its jail lets it). Needs: Python 3.9, and nothing else.

docs/guide/python.md says how to run Flask, Django, Starlette and FastAPI.
"""

from ._log import Level
from .asgi import asgi
from .context import Context, Limits, ServiceError, context
from .data import DataError, DataSource, Failed, Lost, Row, Rows, Shape, SyncDataSource, Unavailable
from .request import Body, BodyError, Headers, Params, Request
from .response import Response, escape, url_encode
from .service import Service, main
from .wsgi import wsgi

__all__ = [
    "Body", "BodyError", "Context", "DataError", "DataSource", "Failed", "Headers", "Level", "Limits", "Lost", "Params",
    "Request", "Response", "Row", "Rows", "Service", "ServiceError", "Shape", "SyncDataSource", "Unavailable", "asgi",
    "context", "escape", "main", "url_encode", "wsgi",
]
