"""A program of the user, an axum router: as a service of ours, alone, and alone behind nginx. All of it is counted."""

from benchlib.case import Bar, Case, Peer
from benchlib.load import Wrk

ALONE = Peer("axum alone", "axum", "axum")


def ours(takes):
    return Peer("ours", config="service-ours.toml", values={"PATH": "/hello", "TAKES": takes})


def behind_nginx():
    return Peer("nginx + axum", "nginx", "upstream-nginx.conf", beside=(Peer("axum", "axum", "axum"),))


CASES = [
    Case("service-keep", "native axum service behind its site, kept alive", (ours("false"), behind_nginx(), ALONE), Wrk("/hello"),
         (Bar("nginx + axum", 0.8, 0.6),), path="/hello", expect=b"Hello.\n",
         note="The service's CPU time is counted for every server. The program alone writes no access log."),
    Case("service-takes-close", "service with `takes_connections`, close", (ours("true"), ALONE), Wrk("/hello", close=True),
         (Bar("axum alone", 1.3),), path="/hello", expect=b"Hello.\n",
         note="The program alone writes no access log; the service does."),
]
