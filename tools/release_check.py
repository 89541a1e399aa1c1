"""Builds wheel and sdist, checks them, and installs each in a clean environment.

    --out FOLDER     keep the two files there
    --no-isolation   build with what is installed, without the network

What it checks: the metadata (twine, if it is there), that the version is that of the changes and of
CITATION.cff, and that a solve and the command line work from each file in a fresh environment.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import venv
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
    if found and found[1] != number:
        wrong.append(f"CITATION.cff names version {found[1]}")
    return wrong


def build(folder: Path, isolated: bool) -> list[Path]:
    if isolated:
        run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    else:
        run(sys.executable, "-m", "hatchling", "build", "-d", folder)
    return sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")])


def install_and_try(file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        run(python, "-m", "pip", "install", "-q", f"{file}[cli]")
        run(python, "-I", "-c", SMOKE, cwd=Path(folder))
        run(Path(folder) / "bin" / "stiefel", "info", cwd=Path(folder))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--no-isolation", action="store_true")
    given = parser.parse_args()
    wrong = check_texts(version())
    for sentence in wrong:
        print(sentence)
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.out or Path(scratch)
        files = build(folder, not given.no_isolation)
        assert len(files) == 2, files
        if (
            subprocess.run([sys.executable, "-c", "import twine"], capture_output=True).returncode
            == 0
        ):
            run(sys.executable, "-m", "twine", "check", "--strict", *files)
        for file in files:
            install_and_try(file)
    print("wheel and sdist are good" if not wrong else "the texts do not agree with the version")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
