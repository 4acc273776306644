"""The table of smuggling probes against what is behind a site: a naive server over HTTP, and php-fpm."""

import json
import shutil
import tempfile
import unittest
from pathlib import Path

import backend
from probing import Probing
from secured import ours, serve


@ours
class SmugglingToAnUpstream(Probing, unittest.TestCase):
    """Behind the site is a server that takes every request as it comes."""

    @classmethod
    def setUpClass(cls):
        echo = lambda request: backend.response(json.dumps({"body_length": len(request.body)}).encode())
        cls.behind = cls.enterClassContext(backend.Raw(answer=echo))
        routes = [{"path": "/probe/", "upstream": cls.behind.at}]
        cls.server = cls.enterClassContext(serve(programs=(), routes=routes))

    def test_the_table(self):
        self.try_all(self.plain, later=False)
        self.assertGreater(len(self.behind.requests), 10)
        paths = {request.line.split()[1] for request in self.behind.requests}
        self.assertEqual(paths, {"/probe/echo"}, "it saw a request that was none")
        self.assertEqual({request.line.split()[2] for request in self.behind.requests}, {"HTTP/1.1"})


@ours
@unittest.skipUnless(backend.php_fpm(), "php-fpm is not installed")
class SmugglingToFastCgi(Probing, unittest.TestCase):
    """Behind the site is php-fpm."""

    @classmethod
    def setUpClass(cls):
        place = Path(tempfile.mkdtemp(prefix="bulkhead-php-", dir="/tmp"))
        cls.addClassCleanup(shutil.rmtree, place, True)
        place.chmod(0o755)
        php = backend.Fpm(place)
        cls.addClassCleanup(php.close)
        routes = [{"path": "/probe/", "fastcgi": f"unix:{php.socket}", "script": "/echo.php"}]
        echo = '<?php echo json_encode(["body_length" => strlen(file_get_contents("php://input"))]);'
        cls.server = cls.enterClassContext(serve(programs=(), routes=routes, files={"echo.php": echo}))

    def test_the_table(self):
        self.try_all(self.plain, later=False)


if __name__ == "__main__":
    unittest.main()
