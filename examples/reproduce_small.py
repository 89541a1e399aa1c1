"""A small figure of the paper

The experiments package runs, records and fits a small Figure 1 in a few seconds. Needs
`pip install ./experiments` in a clone of the repository.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from stiefel_experiments import Request, perform
from stiefel_experiments.reproduce.artefacts import artefact
from stiefel_experiments.reproduce.runs import Extent

extent = Extent(quick=True, starts=2, largest=600, descent_largest=200)
with TemporaryDirectory() as folder:
    outcome = perform(artefact("figure1", extent), Request(Path(folder)))
    for verdict in outcome.report.findings:
        print(verdict)
    assert not outcome.failures
    assert {path.suffix for path in outcome.files} == {".jsonl", ".png", ".svg", ".csv", ".md"}
