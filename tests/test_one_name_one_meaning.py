"""One name, one meaning: a name that is searched for leads to one definition.

A class, a function or a constant of a module may be called as one in another module only where both
are the same thing, and the lists below say why.  Names of a module's own use begin with an
underscore and are free.  Some words cannot be searched for at all: they may be local variables,
and nothing that is read in another function.
"""

import ast
from collections import defaultdict

from test_architecture import EXPERIMENTS, MODULES, SOURCE

# What every module of its kind has.
PROTOCOLS = {
    "State": "what a solver carries from step to step",
    "Objective": "a function to minimise: one with a known answer, or the user's, counted",
    "register": "how a command is put into the command line",
    "MAX_TRIALS": "of a line search, before it gives up",
    "certify": "the certificate of an application's answer",
    "Minimum": "one of the minima that several starts found",
    "minimize": "the call, of each library and of PySCF's objects",
    "random_point": "of one process, and of ranks",
    "nearest": "of one process, of ranks, and of a tree of parameters",
    "extrapolate": "of the formulas, and of the public function",
    "defect": "of a marked parameter, in PyTorch and in JAX",
}
# Modules that say the same of other arrays: single columns, NumPy's own, many problems at once.
TWINS = [
    {"geometry/cayley", "geometry/vector", "geometry/fused", "geometry/compiled"},
    {"geometry/fused", "geometry/compiled", "geometry/ray"},
    {"geometry/fused", "geometry/compiled", "geometry/metric"},
    {"geometry/fused", "geometry/compiled", "geometry/stiefel"},
    {"geometry/compiled", "geometry/grassmann"},
    {"batched/memory", "solvers/memory"},
    {"batched/learned", "solvers/learned_metric"},
    {"batched/leaves", "types"},
    {"batched/state", "runs/ledger"},
]
UNSEARCHABLE = {"moved", "carried", "lifted", "held", "spent", "plain", "turn"}


def definitions(tree):
    """(name, line) of what a module defines for others."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, node.lineno
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((t.id, node.lineno) for t in targets if isinstance(t, ast.Name))


def owners(sources):
    """Public name ↦ the modules that define it."""
    found = defaultdict(set)
    for module, text in sources.items():
        for name, _ in definitions(ast.parse(text)):
            if not name.startswith("_"):
                found[name].add(module)
    return found


def ambiguous(sources):
    return {
        name: modules
        for name, modules in owners(sources).items()
        if len(modules) > 1
        and name not in PROTOCOLS
        and not any(modules <= twins for twins in TWINS)
    }


def lasting_names(tree):
    """(name, line) of what outlives a call: definitions, fields, attributes and parameters."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, node.lineno
        if isinstance(node, ast.FunctionDef):
            yield from ((a.arg, a.lineno) for a in ast.walk(node.args) if isinstance(a, ast.arg))
        if isinstance(node, (ast.Module, ast.ClassDef)):
            yield from definitions(node)
        if isinstance(node, ast.Attribute):
            yield node.attr, node.lineno


def unsearchable(text):
    words = ((name.strip("_").lower(), line) for name, line in lasting_names(ast.parse(text)))
    return sorted({(word, line) for word, line in words if word in UNSEARCHABLE})


SOURCES = {
    path.relative_to(SOURCE).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
    for path in MODULES
}


def test_a_name_has_one_meaning():
    assert not ambiguous(SOURCES)


def test_the_lists_are_needed():
    """A protocol that one module has is none, and twins have names in common."""
    found = owners(SOURCES)
    assert [name for name in PROTOCOLS if len(found[name]) < 2] == []
    for twins in TWINS:
        assert any(twins & modules == modules and len(modules) > 1 for modules in found.values())


def test_names_can_be_searched_for():
    for path in (*MODULES, *EXPERIMENTS):
        found = unsearchable(path.read_text(encoding="utf-8"))
        assert not found, f"{path}: {found}"


def test_the_tests_see_what_they_are_for():
    two = {"solvers/a": "class Trial: ...", "batched/b": "Trial = 3", "c": "_Trial = 4"}
    assert ambiguous(two) == {"Trial": {"solvers/a", "batched/b"}}
    assert not ambiguous({"solvers/a": "class State: ...", "batched/b": "class State: ..."})
    for text in ("def moved(): ...", "class A:\n    turn: int = 0", "x = a.held", "_SPENT = 1",
                 "def f(plain): ..."):  # fmt: skip
        assert unsearchable(text), text
    assert not unsearchable("def f():\n    held = 3\n    return held")
