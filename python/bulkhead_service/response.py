"""A response, as a service makes it.

Runs in: a service. Sees: what the service puts in. Never: sends what cannot stand in a header field.
"""

from __future__ import annotations

import html
import json
from http import HTTPStatus
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any, AsyncIterable, Optional, Union
from urllib.parse import quote

from .request import Body, BodyError

if TYPE_CHECKING:
    from ._http import Connection


def escape(text: object) -> str:
    """Text as it may stand anywhere in HTML where text or a quoted attribute's value may."""
    return html.escape(str(text), quote=True).replace("&#x27;", "&#39;")


def url_encode(text: str) -> str:
    """Text as it may stand as one segment of a path, or as a value in a query."""
    return quote(text, safe="")


class Response:
    """A response: a status, header fields, and a body that is there or is made while it is sent."""

    def __init__(
        self, content_type: str, body: Union[bytes, str, AsyncIterable[bytes]] = b"", status: int = 200,
    ) -> None:
        self.status = int(status)
        # SECURITY: text must not become a page because it looks like one.
        self.headers = [("content-type", content_type), ("x-content-type-options", "nosniff")]
        self.body = body.encode() if isinstance(body, str) else body

    @classmethod
    def html(cls, page: Union[bytes, str]) -> Response:
        """An HTML page."""
        return cls("text/html; charset=utf-8", page)

    @classmethod
    def text(cls, text: Union[bytes, str]) -> Response:
        """Plain text."""
        return cls("text/plain; charset=utf-8", text)

    @classmethod
    def json(cls, value: Any) -> Response:
        """JSON of a value."""
        return cls("application/json", json.dumps(value))

    @classmethod
    def streaming(cls, body: AsyncIterable[bytes], content_type: str = "application/octet-stream") -> Response:
        """A body that is made while it is sent."""
        return cls(content_type, body)

    @classmethod
    def status_page(cls, status: int) -> Response:
        """A small page that says what `status` says."""
        title = f"{int(status)} {HTTPStatus(status).phrase}"
        return cls.html(f"<!doctype html>\n<title>{title}</title>\n<h1>{title}</h1>\n").with_status(status)

    @classmethod
    def see_other(cls, location: str) -> Response:
        """Sends the client to `location` with a `GET`."""
        return cls.status_page(303).with_header("location", location)

    def with_status(self, status: int) -> Response:
        """The same with another status."""
        self.status = int(status)
        return self

    def with_header(self, name: str, value: str) -> Response:
        """The same with one more header, in the place of one of that name."""
        self.headers = [field for field in self.headers if field[0].lower() != name.lower()]
        self.headers.append((name, value))
        return self

    def with_cookie(
        self, name: str, value: str, *, path: str = "/", max_age: Optional[int] = None, secure: bool = True,
        http_only: bool = True, same_site: str = "Lax",
    ) -> Response:
        """The same with a cookie that scripts do not see and that is sent over TLS alone, unless told otherwise."""
        cookie: SimpleCookie = SimpleCookie()
        cookie[name] = value
        morsel = cookie[name]
        morsel["path"], morsel["samesite"] = path, same_site
        if max_age is not None:
            morsel["max-age"] = max_age
        morsel["secure"], morsel["httponly"] = secure, http_only
        self.headers.append(("set-cookie", morsel.OutputString()))
        return self

    async def _send(self, connection: Connection) -> None:
        fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers]
        connection.start_response(self.status, fields)
        if isinstance(self.body, bytes):
            return await connection.send(self.body, False)
        async for part in self.body:
            await connection.send(part, True)
        await connection.send(b"", False)

    @classmethod
    def _of_error(cls, error: Exception, body: Body) -> Optional[Response]:
        """The answer to a body that cannot be read; None for any other error."""
        fault = error if isinstance(error, BodyError) else body.fault
        if isinstance(fault, BodyError) and (fault is error or fault.status == 413):
            return cls.status_page(fault.status)
        return None
