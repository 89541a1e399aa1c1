"""What a file or an argument may say to PySCF: numbers and names, never code.

PySCF evaluates text that is no number as Python: coordinates, and exponents of basis files, which
it looks for under the very name of a basis set.  Molecules are read here, names are matched
against a pattern, and PySCF's own switch is set as a second wall.
"""

from __future__ import annotations

import math
import os
import re
import sys
from pathlib import Path

Atom = tuple[str, tuple[float, float, float]]

MAX_ATOMS = 10_000
MAX_MOLECULE_BYTES = 4_000_000
FARTHEST = 1e6  # Å
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
SYMBOL = re.compile(r"[A-Za-z]{1,2}\d{0,4}", re.ASCII)
BASIS = re.compile(r"[A-Za-z0-9][A-Za-z0-9 +*(),_-]{0,79}", re.ASCII)
FUNCTIONAL = re.compile(r"[A-Za-z0-9.,*+_() -]{1,200}", re.ASCII)


def read_xyz(path: str | os.PathLike[str]) -> list[Atom]:
    """The atoms of an .xyz file, in Å; ``ValueError`` with a sentence if it is anything else."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"{file} is not a file; expected an .xyz file")
    if file.stat().st_size > MAX_MOLECULE_BYTES:
        raise ValueError(f"{file} has more than {MAX_MOLECULE_BYTES} bytes; expected a molecule")
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not text; expected an .xyz file") from None
    return _atoms(lines, file.name)


def _atoms(lines: list[str], name: str) -> list[Atom]:
    first = lines[0].strip() if lines else ""
    if not re.fullmatch(r"\d{1,5}", first, re.ASCII) or not 1 <= int(first) <= MAX_ATOMS:
        raise ValueError(
            f"{name} begins with {first[:40]!r}; expected the number of atoms, 1 to {MAX_ATOMS}"
        )
    count = int(first)
    rows, rest = lines[2 : 2 + count], lines[2 + count :]
    if len(rows) < count or any(line.strip() for line in rest):
        given = sum(1 for line in lines[2:] if line.strip())
        raise ValueError(f"{name} announces {count} atoms and has {given} lines of them")
    return [_atom(row, f"{name}, line {i}") for i, row in enumerate(rows, 3)]


def _atom(row: str, place: str) -> Atom:
    fields = row.split()
    if len(fields) < 4 or not SYMBOL.fullmatch(fields[0]):
        raise ValueError(f"{place}: {row[:60]!r}; expected a symbol and three numbers")
    x, y, z = (_coordinate(text, place) for text in fields[1:4])
    return fields[0], (x, y, z)


def _coordinate(text: str, place: str) -> float:
    if len(text) > 40 or not NUMBER.fullmatch(text):
        raise ValueError(f"{place}: {text[:40]!r} is not a number; expected a coordinate in Å")
    value = float(text)
    if not math.isfinite(value) or abs(value) > FARTHEST:
        raise ValueError(f"{place}: {text!r} is too far away; expected at most {FARTHEST:g} Å")
    return value


def check_basis(name: str) -> str:
    """``name``, if it can only be the name of a basis set."""
    if not BASIS.fullmatch(name):
        raise ValueError(f"the basis {name[:80]!r} is not a name; expected one such as cc-pvdz")
    if os.path.exists(name):
        raise ValueError(
            f"a file or folder is called {name!r}, and PySCF would read the basis from it; "
            "run the command in another folder, or rename the file"
        )
    return name


def check_functional(name: str) -> str:
    """``name``, if it can only be the name of an exchange–correlation functional."""
    if not FUNCTIONAL.fullmatch(name):
        raise ValueError(f"the functional {name[:80]!r} is not a name; expected one such as pbe")
    return name


def forbid_evaluation() -> None:
    """Make PySCF refuse text that is no number, in the modules it has loaded and those to come."""
    import pyscf

    vars(pyscf.__config__)["DISABLE_EVAL"] = True
    for name, module in list(sys.modules.items()):
        if name.startswith("pyscf.") and hasattr(module, "DISABLE_EVAL"):
            vars(module)["DISABLE_EVAL"] = True
