"""New connections over plain TCP: one for each request, and very many at once."""

import dataclasses

from benchlib.case import Bar, Case
from benchlib.load import Wrk

from .static import BARE, H2O, NGINX, OURS

#: The whole load has one address, so its range of addresses may have everything (burst-ours.toml).
MANY = dataclasses.replace(OURS, config="burst-ours.toml")

CASES = [
    Case("close-100b", "one request per connection, 100 B", (OURS, NGINX, H2O, BARE), Wrk("/100.bin", close=True),
         (Bar("nginx", 1.25, 1.10),)),
    Case("burst", "4,000 connections opened at once, p99 over 5 s", (MANY, NGINX, H2O),
         Wrk("/100.bin", connections=4000, lasts=5, warms=False),
         (Bar("nginx", 1.5, figure="p99_us"), Bar("h2o", stretch=1.0, figure="p99_us")), rounds=5, figures=("p99_us", "cpu_us"),
         note="Latency is of answered requests, from the end of the connect to the end of the answer."),
]
