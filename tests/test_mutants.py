"""The laws reject every wrong geometry of `mutants.py`."""

import functools

import numpy as np
import pytest

from laws import LAWS
from mutants import CASES, MUTANTS


@functools.cache
def laws_broken_by(mutant):
    return broken_laws(mutant.geometry(), CASES[mutant.case])


def broken_laws(geometry, case):
    broken = []
    for law in LAWS:
        try:
            with np.errstate(all="ignore"):
                law(geometry, case, np.random.default_rng(1))
        except (AssertionError, ValueError, np.linalg.LinAlgError):
            broken.append(law.__name__)
    return broken


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_law_rejects(mutant):
    assert laws_broken_by(mutant)


@pytest.mark.parametrize("name", sorted({m.case for m in MUTANTS}))
def test_no_law_rejects_the_original(name):
    assert broken_laws(CASES[name].geometry(), CASES[name]) == []


def test_every_law_rejects_something():
    """A law that no mutant breaks would be a law that says nothing; these say other things."""
    about_other_things = {
        "dimension_counts_tangents",
        "lemma_bounds_the_lift",
        "random_points_are_points",
        "restoration_restores",
        "transport_gives_cotangents",
    }
    broken = {law for m in MUTANTS for law in laws_broken_by(m)}
    assert {law.__name__ for law in LAWS} - broken <= about_other_things
