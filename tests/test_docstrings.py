"""Every public name is documented in numpydoc's form, and its examples run."""

import doctest
import importlib
import inspect

import numpy as np
import pytest

import stiefel

# Summaries are sentences of mathematics (SS05, SS06), classes are documented where they are made
# (GL08 of inherited members), and an extended summary or a "See Also" is written where it helps.
IGNORED = {"ES01", "SA01", "SS02", "SS05", "SS06", "GL01", "GL02", "GL03", "EX01", "RT03", "PR09"}
NAMES = sorted(stiefel.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_numpydoc_finds_no_error(name):
    validate = pytest.importorskip("numpydoc.validate").validate
    ignored = IGNORED | ({"PR01"} if name == "Status" else set())  # an enum is not called
    errors = [error for error in validate(f"stiefel.{name}")["errors"] if error[0] not in ignored]
    assert not errors


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name):
    thing = getattr(stiefel, name)
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    module = importlib.import_module(thing.__module__)
    tests = finder.find(thing, name, module=module, globs={})
    assert sum(len(test.examples) for test in tests) > 0, f"{name} has no Examples"
    with np.printoptions(legacy=False):
        results = [runner.run(test) for test in tests]
    assert not any(result.failed for result in results)


@pytest.mark.parametrize("name", [n for n in NAMES if inspect.isclass(getattr(stiefel, n))])
def test_examples_of_own_methods_run(name):
    thing = getattr(stiefel, name)
    for attribute, member in vars(thing).items():
        if inspect.isfunction(member) and ">>>" in (member.__doc__ or ""):
            finder = doctest.DocTestFinder(recurse=False)
            for test in finder.find(member, attribute, globs={}):
                assert not doctest.DocTestRunner().run(test).failed


def test_signatures_are_typed():
    """An editor sees a type for every argument of the front door's functions."""
    for name in ("minimize", "check_gradient", "random_point", "nearest", "interpolate"):
        signature = inspect.signature(getattr(stiefel, name))
        for parameter in signature.parameters.values():
            assert parameter.annotation is not inspect.Parameter.empty, f"{name}: {parameter}"
        assert signature.return_annotation is not inspect.Signature.empty
