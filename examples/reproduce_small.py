"""A small Figure 1 by the library: run, record, fit; a few seconds."""

from pathlib import Path
from tempfile import TemporaryDirectory

from stiefel.experiments import Request, reproduce
from stiefel.experiments.specs import Extent

extent = Extent(quick=True, starts=2, largest=600, descent_largest=200)
with TemporaryDirectory() as folder:
    outcome = reproduce(Request("figure1", Path(folder), extent))
    for verdict in outcome.report.verdicts:
        print(verdict)
    assert not outcome.unconverged
    assert {path.suffix for path in outcome.files} == {".jsonl", ".png", ".svg", ".csv", ".md"}
