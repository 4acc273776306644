"""The service `statistics`: numbers of the whole site, and nothing of any one person."""

from bulkhead_service import Context, DataError, Request, Response, Service, escape, main

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Statistics - In Common</title>
<link rel="stylesheet" href="/style.css">
<header><a class="title" href="/">In Common</a>
<nav><a href="/search">Search</a> <a href="/match">Matches</a> <a href="/messages">Messages</a> \
<a href="/statistics" aria-current="page">Statistics</a></nav>
<a href="/profile">My profile</a></header>
<main>
<h1>Statistics</h1>
%s</main>
"""


def bars(title: str, rows: list[tuple[str, int]]) -> str:
    """A table whose numbers are drawn as bars."""
    most = max((number for _, number in rows), default=1)
    lines = [
        f'<tr><th scope="row">{escape(name)}<td><progress max="{most}" value="{number}"></progress> {number}\n'
        for name, number in rows
    ]
    return f"<section><h2>{escape(title)}</h2>\n<table class=\"bars\">\n{''.join(lines)}</table></section>\n"


class Statistics(Service):
    async def init(self, cx: Context) -> None:
        self.people = cx.data("people")

    async def process(self, request: Request) -> Response:
        if request.path != "/statistics":
            return Response.status_page(404)
        if request.method not in ("GET", "HEAD"):
            return Response.status_page(405).with_header("allow", "GET, HEAD")
        try:
            totals = await self.people.one("totals")
            interests = await self.people.many("popular_interests")
            days = await self.people.many("sent_by_day")
        except DataError:
            return Response.status_page(503)
        figures = "".join(f"<li><b>{totals[name]}</b> {name}\n" for name in ("people", "interests", "messages"))
        page = f'<ul class="figures">\n{figures}</ul>\n'
        page += bars("What people like", [(row.interest, row.people) for row in interests])
        page += bars("Messages of each day", [(row.day, row.messages) for row in days])
        return Response.html(PAGE % page)


if __name__ == "__main__":
    main(Statistics)
