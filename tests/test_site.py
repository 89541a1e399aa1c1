"""The site, where it has been built (python docs/build.py): complete, connected, one story."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SITE = DOCS / "_build" / "html"
built = pytest.mark.skipif(
    not (SITE / "index.html").exists(), reason="the site is not built: python docs/build.py"
)


def module_of_docs(name):
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        path = next(p for p in (DOCS / f"{name}.py", DOCS / "_ext" / f"{name}.py") if p.exists())
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


@built
def test_every_public_name_has_a_page():
    for library in ("torch", "jax", "mpi4py", "pyscf", "sklearn"):
        pytest.importorskip(library)
    api = module_of_docs("api_pages")
    names = api.public_names()
    assert len(names) > 100
    folder = SITE / "reference" / "generated"
    assert not [(m, n) for m, n in names if not (folder / f"{m}.{n}.html").exists()]


def test_every_public_module_is_in_the_reference():
    """What `import stiefel` offers, and every module that has `__all__` and no underscore."""
    import stiefel

    api = module_of_docs("api_pages")
    assert {f"stiefel.{name}" for name in stiefel._LAZY} <= set(api.MODULES)
    listed = [name for names in api.topics().values() for name in names]
    assert sorted(listed) == sorted(stiefel.__all__)


@built
def test_every_recipe_was_executed_and_has_its_page():
    for script in (ROOT / "examples").glob("*.py"):
        page = (SITE / "recipes" / f"{script.stem}.html").read_text(encoding="utf-8")
        assert "did not run the recipe" not in page, script.stem
        assert (DOCS / "_build" / "recipes" / script.stem / "done").exists(), script.stem


@built
def test_no_link_is_dead_and_nothing_is_loaded_from_elsewhere():
    dead, external = module_of_docs("build").check(SITE.resolve())
    assert not dead
    assert not [address for address in external if not address.startswith("https://")]


def test_a_dead_link_is_found(tmp_path):
    (tmp_path / "index.html").write_text(
        '<a href="gone.html">a</a><a href="#lost">b</a><a id="here" href="#here">c</a>'
        '<script src="https://example.org/x.js"></script>'
    )
    dead, external = module_of_docs("build").check(tmp_path)
    assert len(dead) == 3 and external == {"https://example.org/x.js"}


def test_readme_landing_page_and_program_tell_one_story():
    pytest.importorskip("typer")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    landing = (DOCS / "index.md").read_text(encoding="utf-8")
    sentence = "Minimise functions of matrices with orthonormal columns"
    assert sentence in readme.split("<!-- story -->")[1].split("<!-- end of story -->")[0]
    for mark in ("story", "table"):  # the landing page includes both from the README
        assert f"<!-- {mark} -->" in readme and f":start-after: <!-- {mark} -->" in landing
    said = module_of_docs("program_help").help_of("")
    assert sentence in " ".join(said.split()) and "stiefel.minimize(fun, X0)" in said
    assert "stiefel demo" in said and "stiefel demo" in readme and "stiefel demo" in landing
