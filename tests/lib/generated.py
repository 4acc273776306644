"""Parts of pages that programs write: between `<!-- NAME -->` and `<!-- end -->`, a line each."""

END = "<!-- end -->"


def part_of(page, name):
    """The part of this text that is called so; None without it."""
    _, begin, rest = page.partition(f"<!-- {name} -->\n")
    part, end, _ = rest.partition(END)
    return part if begin and end else None


def with_part(page, name, part):
    """The text with another part of that name."""
    begin = f"<!-- {name} -->\n"
    if page.count(begin) != 1:
        raise AssertionError(f"the page has no single {begin!r}")
    before, _, rest = page.partition(begin)
    return before + begin + part + END + rest.partition(END)[2]
