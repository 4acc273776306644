"""What a server of many parts costs: a chain of filters, and a thousand sites."""

from benchlib import parts
from benchlib.case import Bar, Case, Peer

FILTERS = 8


def chain(options):
    return ", ".join([f'["{options.bulkhead.parent / "pass"}"]'] * FILTERS)


FILTERED = Peer("ours", config="filters-ours.toml", values={"FILTERS": chain},
                beside=(Peer("without", config="filters-ours.toml", values={"FILTERS": ""}),))


def sites(count, rounds, *bars):
    ours = Peer("ours", config="sites-ours.toml", values={"SITES": parts.sites_ours(count)})
    nginx = Peer("nginx", "nginx", "sites-nginx.conf", values={"SITES": parts.sites_nginx(count)})
    return Case(f"sites-{count}", f"{count:,} static sites, always on", (ours, nginx), parts.Sites(count), bars, fresh=True,
                rounds=rounds, figures=("memory_mib", "ready_s", "start_cpu_s"),
                note="Each of our sites has a process, a uid and a jail; nginx has all of them in one process. "
                     "The servers may use both cores.")


CASES = [
    Case("filters", "a chained filter, each hop", (FILTERED, Peer("bare processes", "none")), parts.Hops(FILTERS),
         (Bar(stretch=13.0, figure="hop_us"),), figures=("hop_us", "cpu_us"),
         note="The time that each of eight filters adds to a request of a single client; beside it stands hop.c, which "
              "does nothing but pass a descriptor on."),
    sites(1000, 3, Bar(limit=350, stretch=200, figure="memory_mib"), Bar(limit=2.5, stretch=1.0, figure="ready_s")),
    sites(3000, 3, Bar(limit=1050, figure="memory_mib"), Bar(limit=7.5, figure="ready_s")),
]
