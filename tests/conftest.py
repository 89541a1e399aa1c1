"""Which tests run by default: every test, but of a long list of parameters only some.

``pytest`` takes minutes, ``pytest -m "slow or not slow"`` takes everything.
"""

from collections import defaultdict

import pytest

CHEAP = ("test_architecture", "test_docstrings", "test_bad_input", "test_habits")
SOME = 8  # of a test's parameters, evenly spread over the list


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark the others as slow; a test that is named on the command line keeps all of them."""
    if any("::" in argument for argument in config.args) or config.option.keyword:
        return
    families = defaultdict(list)
    for item in items:
        if item.path.stem in CHEAP:
            continue
        families[item.nodeid.partition("[")[0]].append(item)
    for family in families.values():
        kept = {round(i * (len(family) - 1) / (SOME - 1)) for i in range(SOME)}
        for i, item in enumerate(family):
            if len(family) > SOME and i not in kept:
                item.add_marker(pytest.mark.slow)
