"""Every geometry obeys every law, in every array library that it is offered for."""

import numpy as np
import pytest

from cases import GEOMETRIES, NUMPY
from laws import LAWS


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("case", GEOMETRIES, ids=str)
def test_law(case, law):
    law(case.geometry(NUMPY), case, np.random.default_rng(1))
