"""What a user installs: the wheel's contents, its metadata, and the names of its extras."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # building leaves files behind
    parts = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", source / "src", ignore=parts)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "."]
    command += ["-w", str(folder)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_the_wheel_carries_the_library_and_nothing_else(wheel):
    names = wheel.namelist()
    sources = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src").rglob("*.py")}
    carried = {n for n in names if n.endswith(".py")}
    assert carried == sources
    other = {n for n in names if not n.endswith(".py") and ".dist-info/" not in n}
    compiled = {n for n in other if n.startswith("stiefel/backends/_compiled")}
    assert other - compiled == {"stiefel/py.typed"}
    assert len(compiled) <= 1  # none where there is no C compiler
    assert not [n for n in names if "peer_" in n or "experiments" in n or "tests/" in n]


def test_the_metadata(wheel):
    name = next(n for n in wheel.namelist() if n.endswith("/METADATA"))
    meta = message_from_string(wheel.read(name).decode())
    required = [r for r in meta.get_all("Requires-Dist") if "extra ==" not in r]
    assert sorted(r.split(">")[0] for r in required) == [
        "array-api-compat", "numpy", "scipy", "threadpoolctl",
    ]  # fmt: skip
    assert meta["Author"] and meta.get_all("Project-URL") and meta["License-Expression"]
    versions = [c.rsplit(" ", 1)[1] for c in meta.get_all("Classifier") if ":: 3." in c]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    extras = meta.get_all("Provides-Extra")
    assert {"cli", "torch", "jax", "mpi", "chem", "all", "test", "test-all"} <= set(extras)


def test_the_tests_need_no_gigabytes():
    heavy = ("torch", "jax", "pyscf", "mpi4py", "mpich")
    light = " ".join(PROJECT["optional-dependencies"]["test"])
    assert not [name for name in heavy if name in light]
    everything = " ".join(PROJECT["optional-dependencies"]["test-all"])
    assert all(name in everything for name in ("torch", "jax", "mpi", "chem"))


def test_docs_do_not_install_from_an_index_where_nothing_is():
    """Until it is published, users are told to install from the repository."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    pages += (ROOT / "examples").glob("*.py")
    for page in pages:
        if "recipes" in page.parts:  # made from the examples
            continue
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"pip install ['\"]?stiefel", text), page


def test_ci_takes_its_command_from_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for mark in ("<!-- run command -->", "<!-- test command -->"):
        block = text.split(mark)[1].split("```")[1]
        lines = [line for line in block.splitlines()[1:] if line]
        assert len(lines) == 1 and lines[0].startswith("python3 ")


def test_the_texts_agree_with_the_version():
    import runpy

    tool = runpy.run_path(str(ROOT / "tools" / "release_check.py"))
    assert tool["check_texts"](tool["version"]()) == []
    told = tool["check_texts"]("99.0")
    for name in ("CHANGELOG.md", "CITATION.cff"):
        assert any(line.startswith(name) and "99.0" in line for line in told)
