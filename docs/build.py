"""python docs/build.py: builds the site and checks it; warnings and dead links are failures.

The site is docs/_build/html/index.html.  External addresses are listed in
docs/_build/external_links.txt; nothing is asked of the network.
"""

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

DOCS = Path(__file__).resolve().parent
SITE = DOCS / "_build" / "html"
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}


class Links(HTMLParser):
    """The addresses that a page leads to or loads, and the anchors that it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str]] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.found.append((tag, name, value))
            if name in ("id", "name") and value:
                self.anchors.add(value)


def pages_of(site: Path) -> list[Path]:
    """The pages of the site, without the templates that the theme leaves beside its styles."""
    return [page for page in sorted(site.rglob("*.html")) if "_static" not in page.parts]


def check(site: Path) -> tuple[list[str], set[str]]:
    """Dead internal links, things loaded from elsewhere included; and external addresses."""
    pages = {page.resolve(): Links(page) for page in pages_of(site)}
    dead, external = [], set()
    for page, links in pages.items():
        for tag, name, address in links.found:
            parts = urlsplit(address)
            if parts.scheme in ("data", "mailto", "javascript"):
                continue
            if parts.scheme or parts.netloc:
                external.add(address)
                if (tag, name) in LOADED and "canonical" not in address:
                    dead.append(f"{page.relative_to(site)} loads {address}")
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            known = pages.get(target)
            lost = parts.fragment and known and unquote(parts.fragment) not in known.anchors
            if not target.exists() or lost:
                dead.append(f"{page.relative_to(site)} leads to {address}")
    return dead, external


def main() -> int:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-b", "html"]
    built = subprocess.run([*command, *sys.argv[1:], str(DOCS), str(SITE)]).returncode
    if built:
        return built
    dead, external = check(SITE.resolve())
    (DOCS / "_build" / "external_links.txt").write_text("\n".join(sorted(external)) + "\n")
    for sentence in dead:
        print(sentence)
    counts = f"{len(pages_of(SITE))} pages, 0 warnings, {len(dead)} dead links"
    print(f"{counts}, {len(external)} external addresses")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
