"""The shape of the program: who imports whom, what the front door shows, what maps to the paper."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import stiefel

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "stiefel"
MODULES = sorted(SOURCE.rglob("*.py"))
EXPERIMENTS = sorted((ROOT / "experiments" / "src").rglob("*.py"))

FRONT_DOOR = [
    "minimize",
    "minimize_many",
    "ManyResult",
    "Result",
    "Status",
    "Stiefel",
    "Grassmann",
    "Sphere",
    "Euclidean",
    "SpecialOrthogonal",
    "Orthogonal",
    "Unitary",
    "Oblique",
    "ComplexCircle",
    "AcceleratedGradient",
    "GradientDescent",
    "LBFGS",
    "ConjugateGradient",
    "TrustRegion",
    "L1",
    "RowNorms",
    "ProximalLBFGS",
    "ProximalNewton",
    "ProximalGradient",
    "AcceleratedProximal",
    "RelativeGradient",
    "MaxIterations",
    "MaxSeconds",
    "interpolate",
    "extrapolate",
    "nearest",
    "random_point",
    "check_gradient",
    "check_minimum",
]

# A package may import itself and what stands before it.
LAYERS = [
    "types",
    "backends",
    "geometry",
    "objectives",
    "function",
    "solvers",
    "runs",
    "nonsmooth",
    "minimize",  # and the modules beside it
    "training",
    "applications",
    "cli",
]
# An array library is named where arrays are made, differentiated, or offered to its own users.
PUBLIC_PARTS = ("objectives.", "types.", "cli")
MAY_NAME_LIBRARIES = ("backends", "function", "training", "cli", "applications")


def name_of(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path):
    """Absolute names of the modules of this package that a file imports, wherever in the file."""
    package = path.relative_to(SOURCE.parent).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] == "stiefel")
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            if module.partition(".")[0] == "stiefel":
                yield module


def layer(module):
    parts = module.split(".")
    if len(parts) == 1:
        return "minimize"  # the front door
    if parts[1] == "__main__":
        return "cli"
    return parts[1] if parts[1] in LAYERS else "minimize"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: name_of(p))
def test_imports_go_one_way(path):
    here = layer(name_of(path))
    offered = ("stiefel.torch", "stiefel.jax")  # what other libraries' loops are offered
    allowed = LAYERS.index("training" if name_of(path) in offered else here)
    for imported in imports_of(path):
        there = layer(imported)
        assert LAYERS.index(there) <= allowed, f"{name_of(path)} imports {imported}"


def test_no_cycles():
    """Not even between modules of one package."""
    graph = {name_of(path): set(modules_of(path)) for path in MODULES}
    finished, under_way = set(), []

    def visit(name):
        if name in finished or name not in graph:
            return
        assert name not in under_way, " → ".join([*under_way[under_way.index(name) :], name])
        under_way.append(name)
        for imported in sorted(graph[name]):
            visit(imported)
        finished.add(under_way.pop())

    for name in graph:
        visit(name)


# What needs a library that may be missing, or that is slow to import, is imported where it is used.
OPTIONAL = (
    "stiefel.geometry.constraint",
    "stiefel.backends.torch",
    "stiefel.backends.jax",
    "stiefel.batched.torch_many",
    "stiefel.batched.jax_many",
    "stiefel.batched.jax_batch",
    "stiefel.function.autodiff",
    "stiefel.applications.",
    "stiefel.cli.",
)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: name_of(p))
def test_imports_stand_at_the_top(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = set(map(id, tree.body))
    package = path.relative_to(SOURCE.parent).with_suffix("").parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in top:
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            inside = module.startswith("stiefel.")
            assert not inside or f"{module}.".startswith(OPTIONAL), f"{name_of(path)}: {module}"


def modules_of(path):
    """The modules that a file imports: ``from package import module`` names the module."""
    package = path.relative_to(SOURCE.parent).with_suffix("").parts[:-1]
    names = {name_of(p) for p in MODULES}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            for alias in node.names:
                full = f"{module}.{alias.name}"
                yield full if full in names else module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_manifolds_curves_solvers_and_objectives_have_types():
    """`types.py` is the contract: nowhere is one of them just anything."""
    parts = {"geometry", "manifold", "factor", "curve", "ray", "solver", "objective"}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name, annotation = getattr(node, "arg", None), getattr(node, "annotation", None)
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name = node.target.id
            said = ast.unparse(annotation) if annotation is not None else ""
            anything = said in ("Any", "Any | None", "object")
            assert not (name in parts and anything), f"{name_of(path)}: {name}: {said}"


def test_array_libraries_are_named_in_few_places():
    foreign = {"torch", "jax", "cupy", "mpi4py", "array_api_compat", "array_api_strict"}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            named = foreign & {n.partition(".")[0] for n in names}
            part_of_batched = name_of(path).startswith("stiefel.batched.")
            allowed = part_of_batched or layer(name_of(path)) in MAY_NAME_LIBRARIES
            assert not named or allowed, f"{name_of(path)} imports {named}"


def test_the_front_door():
    assert sorted(stiefel.__all__) == sorted(FRONT_DOOR)
    for name in FRONT_DOOR:
        assert getattr(stiefel, name).__doc__, name


def test_importing_is_light():
    """No array library but NumPy comes in by itself."""
    import subprocess
    import sys

    heavy = ("torch", "jax", "typer", "scipy.linalg", "scipy.sparse", "scipy.optimize")
    code = f"import sys, stiefel; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_files_are_short():
    for path in (*MODULES, *EXPERIMENTS):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= 450, f"{path.name} has {lines} lines"


def test_the_experiments_use_public_names():
    """They stand outside: the package's public names, its objectives, and the command line."""
    assert len(EXPERIMENTS) > 10
    for path in EXPERIMENTS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [f"{node.module}.{a.name}" for a in node.names]
            for name in names:
                first, _, rest = name.partition(".")
                public = rest in ("", *stiefel.__all__) or rest.startswith(PUBLIC_PARTS)
                assert first != "stiefel" or public, f"{path.name} imports {name}"


def test_nothing_prints_outside_the_command_line():
    for path in (*MODULES, *EXPERIMENTS):
        name = path.stem if path in EXPERIMENTS else name_of(path)
        if name.startswith("stiefel.cli"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            forbidden = {"print", "eval", "exec", "input"}
            assert not (called and node.func.id in forbidden), f"{name}, line {node.lineno}"


def test_no_global_random_state_and_no_pickle():
    for path in (*MODULES, *EXPERIMENTS):
        if path.name == "peer_cdopt.py":
            continue  # that library draws from it, in a process of its own
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"import pickle|pickle\.(load|dump)|np\.random\.(seed|rand|randn|normal)\(", text
        ), path
        assert "allow_pickle=True" not in text, path


# -- the paper ------------------------------------------------------------------------------------

PAPER = (ROOT / "docs" / "explanations" / "paper.md").read_text(encoding="utf-8")
NUMBERED = {  # how many numbered equations each section has
    "1": 1,
    "2": 13,
    "3": 8,
    "4": 23,
    "5": 6,
    "A": 12,
    "B": 4,
}


def test_every_numbered_item_of_the_paper_is_in_the_map():
    listed = set(re.findall(r"\((\w\.\d+)\)", PAPER))
    for first, last in re.findall(r"\((\w\.\d+)\) to \((\w\.\d+)\)", PAPER):
        section, low = first.split(".")
        listed |= {f"{section}.{i}" for i in range(int(low), int(last.split(".")[1]) + 1)}
    expected = {f"{s}.{i}" for s, count in NUMBERED.items() for i in range(1, count + 1)}
    assert listed == expected
    for item in ("Theorem 3.1", "Theorem 3.2", "Theorem 4.1", "Lemma 4.2", "Algorithm 1"):
        assert item in PAPER
    for item in ("Algorithm 2", "Figure 1", "Figure 2", "Table 1", "Table 2", "Definition 2.1"):
        assert item in PAPER


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(stiefel\.[\w.]+)`", PAPER))))
def test_every_function_of_the_map_exists(name):
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[end:]:
            found = getattr(found, attribute)
        assert callable(found)
        return
    raise AssertionError(name)


REFERENCES = re.compile(
    r"(?:eqs?\. \([\w-]+\)|(?:Theorem|Lemma|Algorithm|Table|Figure) \d(?:\.\d)?|Section \d\.\d)"
)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: name_of(p))
def test_what_docstrings_cite_is_in_the_map(path):
    cited = set(REFERENCES.findall(path.read_text(encoding="utf-8")))
    missing = {c for c in cited if c not in PAPER}
    assert not missing, f"{name_of(path)} cites {missing}"


def test_laws_named_in_the_map_exist():
    import laws

    names = {law.__name__ for law in laws.LAWS}
    assert set(re.findall(r"law `(\w+)`", PAPER)) <= names
    assert "lemma_bounds_the_lift" in names
