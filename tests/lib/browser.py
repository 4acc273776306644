"""A browser as far as forms need one: it keeps cookies."""


class Browser:
    """Makes a connection for each request."""

    def __init__(self, server, host):
        self.server, self.host, self.cookies = server, host, {}

    def ask(self, target, method="GET", body=b"", headers=()):
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        with self.server.connect() as connection:
            answer = connection.get(target, self.host, [*([f"Cookie: {cookies}"] if cookies else []), *headers], method, body)
        line = answer.headers.get("set-cookie")
        if line:
            name, value = line.split(";")[0].split("=", 1)
            self.cookies[name] = value
        return answer
