"""`bulkhead guard` before programs that load no library: their system calls are answered in their place."""

import shutil
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import guarded
from harness import rootless_too

GO = r"""
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
)

func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		panic(err)
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s at %s", r.RemoteAddr, listener.Addr())
	})
	panic(http.Serve(listener, nil))
}
"""

#: One request at a time, with accept(2) that waits; ends itself after the request /end with status 7.
STATIC = r"""
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words)
{
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    address.sin_port = htons((unsigned short)atoi(words[count - 1]));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 5))
        return perror("listen"), 1;
    for (;;) {
        struct sockaddr_in peer;
        socklen_t length = sizeof peer;
        int client = accept(listener, (void *)&peer, &length);
        char request[4096] = "", text[64], answer[256];
        if (client < 0)
            return perror("accept"), 1;
        if (read(client, request, sizeof request - 1) > 0) {
            int size = snprintf(text, sizeof text, "%s:%d", inet_ntoa(peer.sin_addr), ntohs(peer.sin_port));
            size = snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n"
                            "Connection: close\r\n\r\n%s", size, text);
            if (write(client, answer, size) < 0)
                perror("write");
        }
        close(client);
        if (strstr(request, "GET /end "))
            return 7;
    }
}
"""


class Notify(unittest.TestCase):
    """One folder with both programs for all tests."""

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="bulkhead-test-", dir="/tmp"))
        cls.folder.chmod(0o755)
        (cls.folder / "static.c").write_text(STATIC)
        subprocess.run(["gcc", "-static", "-O2", "-o", "static", "static.c"], cwd=cls.folder, check=True)
        if shutil.which("go"):
            (cls.folder / "main.go").write_text(GO)
            subprocess.run(["go", "build", "-o", "go-server", "main.go"], cwd=cls.folder, check=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def go(self, *options):
        if not (self.folder / "go-server").exists():
            self.skipTest("there is no go")
        return guarded.Guarded(lambda port: [self.folder / "go-server", f"127.0.0.1:{port}"], *options)

    def static(self, *options):
        return guarded.Guarded(lambda port: [self.folder / "static", str(port)], *options)

    @rootless_too
    def test_go_answers_and_sees_its_clients(self):
        with self.go() as guard, guarded.Client(guard) as client:
            for _ in range(3):
                self.assertEqual(client.get("/"), f"{client.address} at 127.0.0.1:{guard.port}")
            self.assertEqual(guard.sockets_held(), 1, "it keeps what is kept alive")
            with guarded.incomplete(guard, 20):
                time.sleep(0.2)
                self.assertEqual(guard.sockets_held(), 1, "what is incomplete does not reach it")

    @rootless_too
    def test_go_under_load_of_many_clients(self):
        with self.go() as guard:
            wrong = []

            def some():
                for _ in range(20):
                    with guarded.Client(guard) as client:
                        if not client.get("/").startswith(client.address):
                            wrong.append(client.address)

            threads = [threading.Thread(target=some) for _ in range(8)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            self.assertEqual(wrong, [])

    def test_closed_connections_are_no_longer_counted(self):
        # The client's /24 may have two of a hundred connections at once; it makes twenty, one after the other.
        options = ["--connections=100", "--share-of-8=0.02", "--share-of-16=0.02", "--share-of-24=0.02"]
        with self.go(*options, "--exempt=10.0.0.0/8") as guard:
            began = time.monotonic()
            for _ in range(20):
                with guarded.Client(guard) as client:
                    client.get("/")
            self.assertLess(time.monotonic() - began, 5)
            with guarded.Client(guard) as one, guarded.Client(guard) as two, guarded.Client(guard) as third:
                one.get("/")
                two.get("/")
                third.socket.settimeout(1)
                with self.assertRaises(TimeoutError):
                    third.get("/")

    @rootless_too
    def test_an_accept_that_waits_hinders_nobody(self):
        with self.static() as guard:
            for _ in range(10):
                with guarded.Client(guard) as client:
                    self.assertEqual(client.get("/"), client.address)

    @rootless_too
    def test_incomplete_requests_never_reach_it(self):
        # Served one at a time, one of these would stop it for ever.
        with self.static() as guard, guarded.incomplete(guard, 50):
            for _ in range(5):
                with guarded.Client(guard) as client:
                    self.assertEqual(client.get("/"), client.address)

    @rootless_too
    def test_the_status_is_passed_on(self):
        with self.static() as guard:
            with guarded.Client(guard) as client:
                client.get("/end")
            self.assertEqual(guard.wait(), 7)

    def test_it_is_the_gate_that_listens_in_its_place(self):
        front = guarded.free_port()
        with self.static(f"--listen={front}") as guard:
            self.assertTrue(guarded.refuses(guard.port), "the program's own address is not open")
            with guarded.Client(guard, front) as client:
                self.assertEqual(client.get("/"), client.address)

    def test_filters_are_refused(self):
        command = [guarded.program("bulkhead"), "guard", "--filter", "/bin/true", "--", self.folder / "static", "1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        self.assertEqual(done.returncode, 1)
        self.assertIn("leave `--filter` out", done.stderr)


if __name__ == "__main__":
    unittest.main()
