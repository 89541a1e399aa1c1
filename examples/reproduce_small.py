"""A small figure of the paper

The experiments package runs, records and fits a small Figure 1 in a few seconds; theory
predicts slopes of 0.5 for the accelerated methods and 1 for gradient descent. Needs `pip install
./experiments` in a clone of the repository.
"""

import io
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt

from stiefel_experiments import Request, perform
from stiefel_experiments.reproduce.artefacts import artefact
from stiefel_experiments.reproduce.runs import Extent

extent = Extent(quick=True, starts=2, largest=600, descent_largest=200)
with TemporaryDirectory() as folder:
    outcome = perform(artefact("figure1", extent), Request(Path(folder)))
    for verdict in outcome.report.findings:
        print(verdict)
    assert not outcome.failures
    plt.imshow(plt.imread(io.BytesIO(outcome.report.files["figure1.png"])))
    plt.axis("off")
    assert {path.suffix for path in outcome.files} == {".jsonl", ".png", ".svg", ".csv", ".md"}
