"""Builds wheel and sdist, checks them, and installs each in a clean environment.

    --out FOLDER     keep the two files there

Nothing but Python and pip has to be installed: `build` and `twine` get an environment of their own.
What is checked: the metadata (twine, strictly), that the version is that of the changes, of
CITATION.cff and of the experiments, that the wheel holds the library and nothing else, and that a
solve and the command line work from each file in a fresh environment.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SMOKE = """
import numpy as np, stiefel
A = np.diag(np.arange(1.0, 21.0))
r = stiefel.minimize(lambda X: (np.vdot(X, A @ X), 2 * A @ X), stiefel.random_point(20, 2, seed=0))
assert r.success and abs(r.fun - 3.0) < 1e-6, r
print("stiefel", stiefel.__version__, "works from", stiefel.__file__)
"""


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    subprocess.run([str(part) for part in command], cwd=cwd, check=True)


def version() -> str:
    text = (ROOT / "src" / "stiefel" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'__version__ = "(.+?)"', text)[1]


def check_texts(number: str) -> list[str]:
    """What the texts say of the version; empty if they agree."""
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    wrong = [] if f"## {number}" in changes else [f"CHANGELOG.md has no section {number}"]
    found = re.search(r"^version: *\"?([\w.]+)", citation, re.M)
    if not found or found[1] != number:
        wrong.append(f"CITATION.cff does not name version {number}")
    experiments = (ROOT / "experiments" / "pyproject.toml").read_text(encoding="utf-8")
    if f'version = "{number}"' not in experiments:
        wrong.append(f"experiments/pyproject.toml does not name version {number}")
    return wrong


def new_environment(folder: Path, *packages: str) -> Path:
    """The Python of a fresh environment with these packages."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", *packages)
    return python


def build(folder: Path, scratch: Path) -> list[Path]:
    python = new_environment(scratch / "tools", "build", "twine")
    run(python, "-m", "build", "--outdir", folder, ROOT)
    files = sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")])
    run(python, "-m", "twine", "check", "--strict", *files)
    return files


def strangers(wheel: Path) -> list[str]:
    """What the wheel holds beside the library and its metadata."""
    names = zipfile.ZipFile(wheel).namelist()
    return [name for name in names if not name.startswith(("stiefel/", "stiefel-"))]


def install_and_try(file: Path, folder: Path) -> None:
    python = new_environment(folder, f"{file}[cli]")
    run(python, "-I", "-c", SMOKE, cwd=folder)
    run(folder / "bin" / "stiefel", "info", cwd=folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    wrong = check_texts(version())
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        files = build(given.out or scratch / "dist", scratch)
        assert [file.suffix for file in files] == [".whl", ".gz"], files
        wrong += [f"the wheel holds {name}" for name in strangers(files[0])]
        for i, file in enumerate(files):
            install_and_try(file, scratch / f"try{i}")
    print("\n".join(["not ready:", *wrong]) if wrong else "wheel and sdist are good")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
