"""Files over plain TCP, kept alive.

nginx's bars are those of its usual configuration, with sendfile; beside it stands nginx without, which needs less for
files as small as these.
"""

from benchlib.case import Bar, Case, Peer
from benchlib.load import Wrk

OURS, NGINX = Peer("ours"), Peer("nginx", "nginx", "static-nginx.conf")
PLAIN = Peer("nginx without sendfile", "nginx", "static-nginx.conf", values={"SENDFILE": "off"})
H2O, BARE = Peer("h2o", "h2o", "static-h2o.conf"), Peer("bare loop", "bare", "bare.c")

CASES = [
    Case("static-100b", "static file, 100 B, kept alive", (OURS, NGINX, PLAIN, H2O, BARE), Wrk("/100.bin"),
         (Bar("nginx", 0.70, 0.60), Bar("bare loop", stretch=1.10))),
    Case("static-10k", "static file, 10 KB, kept alive", (OURS, NGINX, PLAIN, BARE), Wrk("/10k.bin"),
         (Bar("nginx", 0.70, 0.60), Bar("bare loop", stretch=1.10)), path="/10k.bin"),
    Case("static-1m", "static file, 1 MB, kept alive", (OURS, NGINX, PLAIN, H2O), Wrk("/1m.bin"),
         (Bar("nginx", 0.70), Bar("nginx without sendfile", 0.70)), path="/1m.bin"),
]
