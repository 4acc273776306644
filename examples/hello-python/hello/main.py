"""The smallest service in Python: says hello, and counts how often."""

from bulkhead_service import Context, Request, Response, Service, escape, main


class Hello(Service):
    """State is made in `init`, and lives as long as the process."""

    async def init(self, cx: Context) -> None:
        self.said = 0

    async def process(self, request: Request) -> Response:
        self.said += 1
        return Response.html(f"<p>Hello, {escape(request.param('name') or 'you')}! I have said so {self.said} times.\n")


if __name__ == "__main__":
    main(Hello)
