"""Servers behind: an HTTP server and php-fpm, one for each that is measured, on the core of the load and counted for nobody."""

from benchlib.case import Bar, Case, Peer
from benchlib.load import Wrk

BACKEND = Peer("backend", "nginx", "backend-nginx.conf")
FPM = Peer("php-fpm", "php-fpm", "php-fpm.conf")
UPSTREAM = (Peer("ours", config="upstream-ours.toml"), Peer("nginx", "nginx", "upstream-nginx.conf"),
            Peer("HAProxy", "haproxy", "upstream-haproxy.cfg"))
FASTCGI = (Peer("ours", config="fastcgi-ours.toml"), Peer("nginx", "nginx", "fastcgi-nginx.conf"))


def upstream(name, title, close, limit):
    return Case(name, f"HTTP upstream, {title}", UPSTREAM, Wrk("/x", close=close),
                (Bar("nginx", limit, 0.8),), path="/x", expect=b"x" * 100, behind=BACKEND)


def fastcgi(name, title, close, limit):
    return Case(name, f"FastCGI (php-fpm, 16 children, hello), {title}", FASTCGI, Wrk("/hello.php", close=close),
                (Bar("nginx", limit, 0.8),), path="/hello.php", expect=b"Hello from PHP.\n", behind=FPM,
                note="php-fpm is counted for neither. nginx keeps 16 connections to php-fpm.")


CASES = [
    upstream("upstream-keep", "kept alive", False, 1.0),
    upstream("upstream-close", "close", True, 1.3),
    fastcgi("fastcgi-keep", "kept alive", False, 1.0),
    fastcgi("fastcgi-close", "close", True, 1.4),
]
