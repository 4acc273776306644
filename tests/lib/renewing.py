"""A server with a database, whose operator writes files again while it serves, and whose database's operator ends connections."""

from client import until
from databases import DataServer

#: What data proxies say of a password or of authorities that were read again.
HOLDS = "what was read again holds for connections from here on"
STAYS = "what was there before stays until the server takes what was read again"


class Renewing(DataServer):
    def renew(self, name, text, said):
        """Writes a file again, and waits until a data proxy has said something of it."""
        before = self.log().count(said)
        self.write(name, text)
        self.reread()
        assert until(lambda: self.log().count(said) > before, 10), self.log()

    def reread(self):
        answer = self.command("reload", "--run-dir", "run")
        assert answer.returncode == 0, answer.stderr

    def answers_anew(self):
        """Whether calls are answered on connections that are made from here on."""
        self.engine.at.end_connections()
        return until(lambda: self.ask("many", "users")[0] == 200, 10)
