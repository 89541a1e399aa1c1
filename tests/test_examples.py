"""What the documentation shows runs: examples as scripts, code blocks page by page."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
MARKDOWN = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "experiments").glob("*.md"),
]
GENERATED = ("_build", "recipes", "generated")  # by the site's build, from what is tested elsewhere
MARKDOWN = [p for p in MARKDOWN if not set(GENERATED) & set(p.relative_to(ROOT).parts)]
PAGES = sorted(p for p in MARKDOWN if BLOCK.search(p.read_text(encoding="utf-8")))


def run(script, folder, *options):
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    needed = re.findall(
        r"^\s*(?:import|from) (torch|jax|optax|flax|equinox|pyscf|mpi4py|sklearn|networkx)\b",
        script.read_text(encoding="utf-8"),
        re.M,
    )
    for library in needed:
        pytest.importorskip(library)
    done = subprocess.run(
        [sys.executable, *options, str(script)],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda p: p.stem)
def test_example(script, tmp_path):
    run(script, tmp_path, "-W", "error")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_code_of_a_page(page, tmp_path):
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    script = tmp_path / f"page_{page.stem}.py"  # not the name of a library
    script.write_text("\n".join(blocks), encoding="utf-8")
    run(script, tmp_path)


def test_pages_link_to_what_exists():
    for page in MARKDOWN:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            made = "recipes/" in target or "generated/" in target  # the site's build checks these
            assert made or (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_status_is_explained():
    import stiefel

    for page in ("reference/statuses.md", "guide/minimize.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert not [s.name for s in stiefel.Status if f"`{s.name}`" not in text], page
