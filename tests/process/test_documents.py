"""The documents: their links lead somewhere."""

import re
import unittest

from harness import TOP

#: Every document for people. bench/ has pages that the benchmarks write.
PAGES = sorted([*TOP.glob("*.md"), *TOP.glob("docs/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def prose(page):
    """The lines of a page that are not in a block, with code in lines left out."""
    inside = False
    for line in page.read_text().splitlines():
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            yield line


def anchors(page):
    """The names by which the headings of a page are linked to, made as GitHub makes them."""
    heads = [re.sub(r"^#+ ", "", line) for line in prose(page) if re.match(r"#{1,6} ", line)]
    names = [re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head).lower()).replace(" ", "-") for head in heads]
    return {name if names[:at].count(name) == 0 else f"{name}-{names[:at].count(name)}" for at, name in enumerate(names)}


class Links(unittest.TestCase):
    rootless = True

    def test_every_link_leads_somewhere(self):
        broken = []
        for page in PAGES:
            for target in LINK.findall(re.sub(r"`[^`]*`", "", "\n".join(prose(page)))):
                path, _, anchor = target.partition("#")
                to = (page.parent / path).resolve() if path else page
                if re.match(r"[a-z]+:", target):
                    continue
                if not to.exists() or (anchor and anchor not in anchors(to)):
                    broken.append(f"{page.relative_to(TOP)}: {target}")
        self.assertEqual(broken, [])
