"""The pages of the reference: one for each public name, listed by module and by topic.

A name that a module adds to its `__all__` gets a page without anybody's help.
"""

import importlib
import inspect
import re
from pathlib import Path

PAGES = Path(__file__).parents[1] / "reference" / "generated"

# Topics of the namespace `stiefel`; a public name that is in none of them is listed under the last.
TOPICS = {
    "Solving": ["minimize", "minimize_many", "Result", "ManyResult", "Status"],
    "Manifolds": [
        "Stiefel", "Grassmann", "Sphere", "Oblique", "Orthogonal", "SpecialOrthogonal", "Unitary",
        "ComplexCircle", "Euclidean",
    ],
    "Methods": [
        "LBFGS", "AcceleratedGradient", "GradientDescent", "ConjugateGradient", "TrustRegion",
        "ProximalLBFGS", "ProximalNewton", "ProximalGradient", "AcceleratedProximal",
    ],
    "Terms that are not smooth": ["L1", "RowNorms"],
    "Stopping": ["RelativeGradient", "MaxIterations", "MaxSeconds"],
    "Points": ["random_point", "nearest", "interpolate", "extrapolate"],
    "Checks and other names": ["check_gradient", "check_minimum"],
}  # fmt: skip

# Modules beside it.  Where names are given here the module has no `__all__`.
MODULES = {
    "stiefel.torch": ("PyTorch", ()),
    "stiefel.jax": ("JAX", ()),
    "stiefel.mpi": ("Many machines", ()),
    "stiefel.preconditioners": ("Preconditioners", ("QuadraticPreconditioner", "diagonal")),
    "stiefel.check": ("Further checks", ("check_invariance",)),
    "stiefel.runs.stopping": (
        "Further stopping rules",
        ("AbsoluteGradient", "SmallDecrease", "MaxEvaluations", "AnyOf"),
    ),
    "stiefel.testing": ("Tests for your own manifolds and terms", ()),
    "stiefel.solvers.momentum": (
        "Momentum sequences",
        ("LinearMomentum", "SequenceMomentum", "StronglyConvexMomentum", "NoMomentum"),
    ),
    "stiefel.objectives": ("Functions with known minima", ()),
    "stiefel.applications.scf": ("Electronic structure", ()),
    "stiefel.applications.localization": ("Orbital localisation", ("localize", "Localized")),
    "stiefel.applications.wannier": ("Wannier functions", ()),
    "stiefel.applications.compressed_modes": (
        "Compressed modes",
        ("compressed_modes", "Modes", "refined", "closed_form", "wells", "plot"),
    ),
    "stiefel.applications.synchronization": (
        "Rotation synchronisation",
        ("synchronize", "Synchronization", "spectral_start"),
    ),
    "stiefel.applications.staircase": ("The staircase of ranks", ("staircase", "Staircase")),
    "stiefel.applications.maxcut": ("Max-cut", ("max_cut", "Cut")),
    "stiefel.applications.g2o": ("Pose graphs in files", ("read_g2o", "PoseGraph")),
    "stiefel.applications.data": (
        "Estimators",
        ("TraceRatioDiscriminantAnalysis", "ProcrustesRegression", "JointDiagonalizer"),
    ),
    "stiefel.applications.sparse_pca": ("Sparse principal components", ("OrthogonalSparsePCA",)),
}


def names_of(module: str) -> list[str]:
    return sorted(MODULES[module][1] or importlib.import_module(module).__all__)


def public_names() -> list[tuple[str, str]]:
    """Every public name with the module that a user imports it from."""
    front = [("stiefel", name) for names in topics().values() for name in names]
    return front + [(module, name) for module in MODULES for name in names_of(module)]


def topics() -> dict[str, list[str]]:
    import stiefel

    listed = {name for names in TOPICS.values() for name in names}
    found = {
        title: [name for name in names if name in stiefel.__all__]
        for title, names in TOPICS.items()
    }
    found[next(reversed(found))] += [name for name in stiefel.__all__ if name not in listed]
    return found


def summary(module: str, names: list[str]) -> list[str]:
    """A table of names with the first sentences of their docstrings."""
    lines = [".. list-table::", "   :widths: 30 70", ""]
    for name in names:
        thing = getattr(importlib.import_module(module), name)
        said = (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")
        said = "" if type(thing).__doc__ == thing.__doc__ else escaped(said)
        lines += [f"   * - :doc:`{name} <{module}.{name}>`", f"     - {said}"]
    hidden = [".. toctree::", "   :hidden:", "", *(f"   {module}.{name}" for name in names), ""]
    return [*lines, "", *hidden]


def escaped(line: str) -> str:
    """Bars and stars of mathematics are no markup; literals are left as they are."""
    parts = re.split(r"(``.+?``|`.+?`)", line)
    return "".join(p if i % 2 else re.sub(r"([|*])", r"\\\1", p) for i, p in enumerate(parts))


def write_name(module: str, name: str) -> None:
    thing = getattr(importlib.import_module(module), name)
    lines = [*heading(f"{module}.{name}", "="), f".. currentmodule:: {module}", ""]
    if inspect.isclass(thing):
        lines += [f".. autoclass:: {name}", "   :members:", ""]
    else:
        lines += [f".. auto{'function' if callable(thing) else 'data'}:: {name}", ""]
    (PAGES / f"{module}.{name}.rst").write_text("\n".join(lines), encoding="utf-8")


def escape_docstring(app, what, name, obj, options, lines) -> None:
    """After numpydoc: the bars of |x| are no substitutions of reStructuredText."""
    doctest = False
    for i, line in enumerate(lines):
        doctest = line.lstrip().startswith(">>>") or (doctest and bool(line.strip()))
        if not doctest and not line.lstrip().startswith("..") and "|" in line:
            parts = re.split(r"(``.+?``|`.+?`)", line)
            lines[i] = "".join(p if j % 2 else p.replace("|", "\\|") for j, p in enumerate(parts))


def heading(title: str, line: str) -> list[str]:
    return [title, line * len(title), ""]


def first_sentence(module: str) -> str:
    text = (importlib.import_module(module).__doc__ or "").strip()
    return text.split("\n\n")[0].replace("\n", " ")


def build(app) -> None:
    PAGES.mkdir(parents=True, exist_ok=True)
    front = [*heading("The namespace stiefel", "="), ".. currentmodule:: stiefel", ""]
    for title, names in topics().items():
        front += [*heading(title, "-"), *summary("stiefel", names)]
    (PAGES / "stiefel.rst").write_text("\n".join(front), encoding="utf-8")
    for module, name in public_names():
        write_name(module, name)
    for module, (title, _) in MODULES.items():
        lines = [*heading(f"{title}: {module}", "="), f".. currentmodule:: {module}", ""]
        lines += [escaped(first_sentence(module)), "", *summary(module, names_of(module))]
        (PAGES / f"{module}.rst").write_text("\n".join(lines), encoding="utf-8")


def skip(app, what, name, obj, skipped, options) -> bool | None:
    """Methods that another library adds to every class of its kind."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def setup(app):
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("builder-inited", build)
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-docstring", escape_docstring, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
