"""The list of solver mutants is up to date; `python tests/solver_mutants.py` runs them."""

import pytest

from solver_mutants import MUTANTS, PACKAGE, killer


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_the_line_of_a_mutant_is_where_it_is_said_to_be(mutant):
    assert (PACKAGE / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1
    assert mutant.old != mutant.new


def test_there_are_enough_of_them():
    assert len(set(MUTANTS)) == len(MUTANTS) >= 40


@pytest.mark.slow
@pytest.mark.parametrize("why", ["β for β² in ‖D‖²", "the radius never grows"])
def test_a_mutant_is_killed(why):
    """The command itself works: two mutants that fall at once."""
    assert killer(next(m for m in MUTANTS if m.why == why)) is not None
