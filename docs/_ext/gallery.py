"""Recipes: every examples/*.py becomes a page with its text, its code, its output and its picture.

The docstring of a script is the head of its page: the first line is the title, the rest an
introduction in Markdown.  Comments that begin with ``# %%`` are text between pieces of code.  Each
script runs in a process of its own; a script that fails is a warning, and a build with warnings
fails.  What ran before is kept in docs/_build/recipes and used again while neither the script nor
the library has changed.
"""

import ast
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile

from groups import GROUPS
from sphinx.util import logging

logger = logging.getLogger(__name__)
DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
EXAMPLES = ROOT / "examples"
KEPT = DOCS / "_build" / "recipes"
PAGES = DOCS / "recipes"
OPTIONAL = "torch|jax|optax|pyscf|mpi4py|sklearn|networkx"
RUNNER = Path(__file__).parent / "run_recipe.py"


@dataclass(frozen=True)
class Recipe:
    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def source(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def head(self) -> tuple[str, str]:
        """Title and introduction."""
        title, _, rest = (ast.get_docstring(ast.parse(self.source)) or self.name).partition("\n")
        return title.rstrip("."), rest.strip()

    @property
    def missing(self) -> list[str]:
        named = re.findall(rf"^\s*(?:import|from) ({OPTIONAL})\b", self.source, re.M)
        return [library for library in named if importlib.util.find_spec(library) is None]

    @property
    def folder(self) -> Path:
        return KEPT / self.name

    @property
    def pictures(self) -> list[Path]:
        return sorted(self.folder.glob("*.png"))


def recipes() -> list[Recipe]:
    return [Recipe(path) for path in sorted(EXAMPLES.glob("*.py"))]


def library_fingerprint() -> bytes:
    files = [*sorted((ROOT / "src").rglob("*.py")), RUNNER]
    return b"".join(hashlib.sha256(path.read_bytes()).digest() for path in files)


def execute(recipe: Recipe, library: bytes) -> str | None:
    """Run it, unless it ran before; what went wrong, or None."""
    key = hashlib.sha256(recipe.source.encode() + library).hexdigest()
    done = recipe.folder / "done"
    kept = done.exists() and (os.environ.get("DOCS_KEEP") or done.read_text() == key)
    if kept:  # DOCS_KEEP=1, while texts are written, takes the results of an older library too
        return None
    recipe.folder.mkdir(parents=True, exist_ok=True)
    for old in recipe.folder.glob("*"):
        old.unlink()
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, str(RUNNER), str(recipe.path), str(recipe.folder)],
        env=os.environ | threads | {"PYTHONPATH": path, "MPLBACKEND": "Agg"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    if ran.returncode:
        return ran.stderr[-1500:]
    (recipe.folder / "output.txt").write_text(ran.stdout, encoding="utf-8")
    done.write_text(key)
    return None


def pieces(source: str) -> list[tuple[str, str]]:
    """("code", …) and ("text", …) in their order, without the docstring."""
    body = source.split('"""', 2)[2].strip("\n")
    found: list[tuple[str, str]] = []
    for part in re.split(r"^# %%[ \t]?", body, flags=re.M):
        if found or body.startswith("# %%"):
            lines = part.split("\n")
            count = next(
                (i for i, s in enumerate(lines) if i and not s.startswith("#")), len(lines)
            )
            text = [lines[0], *(s.lstrip("#").removeprefix(" ") for s in lines[1:count])]
            found.append(("text", "\n".join(text).strip()))
            part = "\n".join(lines[count:])
        if part.strip():
            found.append(("code", part.strip("\n")))
    return found


def page(recipe: Recipe) -> str:
    title, introduction = recipe.head
    lines = [f"# {title}", "", introduction, ""]
    for i, picture in enumerate(recipe.pictures):
        copyfile(picture, PAGES / "images" / f"{recipe.name}-{i}.png")
        lines += [f"![{title}](images/{recipe.name}-{i}.png)", ""]
    if recipe.missing:
        needs = " and ".join(recipe.missing)
        lines += [f"*This build did not run the recipe, because {needs} is not installed.*", ""]
    for kind, text in pieces(recipe.source):
        lines += ["````python", text, "````", ""] if kind == "code" else [text, ""]
    output = recipe.folder / "output.txt"
    if output.exists() and output.read_text(encoding="utf-8").strip():
        lines += ["The script prints:", "", "````text", output.read_text(encoding="utf-8").rstrip()]
        lines += ["````", ""]
    return "\n".join(
        [*lines, f"Download {{download}}`{recipe.name}.py <../../examples/{recipe.name}.py>`.\n"]
    )


def card(recipe: Recipe) -> list[str]:
    title = recipe.head[0]
    picture = f"images/{recipe.name}-0.png" if recipe.pictures else "../_static/logo.svg"
    return [
        ":::{container} recipe-card",
        f"[![{title}]({picture})]({recipe.name}.md)",
        "",
        f"[{title}]({recipe.name}.md)",
        ":::",
        "",
    ]


def grouped(found: list[Recipe]) -> dict[str, list[Recipe]]:
    """The recipes by the groups of groups.py; what is in none of them comes last."""
    by_name = {recipe.name: recipe for recipe in found}
    groups = {
        title: [by_name.pop(name) for name in names if name in by_name]
        for title, names in GROUPS.items()
    }
    return groups | ({"More examples": list(by_name.values())} if by_name else {})


def index(found: list[Recipe]) -> str:
    lines = ["# Recipes", "", (Path(__file__).parent / "recipes.md").read_text(encoding="utf-8")]
    for title, members in grouped(found).items():
        lines += [f"## {title}", "", "::::{container} recipe-grid"]
        lines += [line for recipe in members for line in card(recipe)]
        lines += ["::::", ""]
    lines += ["```{toctree}", ":hidden:", ""]
    lines += [recipe.name for members in grouped(found).values() for recipe in members]
    return "\n".join([*lines, "```", ""])


def write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def build(app) -> None:
    (PAGES / "images").mkdir(parents=True, exist_ok=True)
    found, library = recipes(), library_fingerprint()
    able = [recipe for recipe in found if not recipe.missing]
    with ThreadPoolExecutor(int(os.environ.get("DOCS_JOBS", "2"))) as pool:
        for recipe, error in zip(able, pool.map(lambda r: execute(r, library), able)):
            if error:
                logger.warning("the recipe %s failed: %s", recipe.name, error)
    for recipe in found:
        write_if_changed(PAGES / f"{recipe.name}.md", page(recipe))
    write_if_changed(PAGES / "index.md", index(found))
    for stale in {p.stem for p in PAGES.glob("*.md")} - {r.name for r in found} - {"index"}:
        (PAGES / f"{stale}.md").unlink()
    logger.info("recipes: %d, of which %d were executed", len(found), len(able))


def setup(app):
    app.connect("builder-inited", build)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
