"""Servers whose uids a test chooses, and mounts that only they see."""

from harness import USER_RANGE, Server, site

UNSHARED = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]


class Overlapping(Server):
    """A server with these uids."""

    def __init__(self, uids):
        self.same = uids
        super().__init__([site()], ())

    def with_uids(self, text):
        return text.replace(USER_RANGE, f"{self.same[0]}-{self.same[-1]}")
