"""Files that the command line reads are hostile; processes and threads give the same bits."""

import ast
import contextlib
import io
import json
import multiprocessing
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stiefel
from stiefel.runs import archive
from stiefel.runs.saved_types import thaw
from stiefel.solvers.lbfgs import State

matrices = pytest.importorskip("stiefel.cli.matrices")
output = pytest.importorskip("stiefel.cli.output")
records = pytest.importorskip("stiefel_experiments.records")
reproduced = pytest.importorskip("stiefel_experiments.reproduce.runs").FORMAT
benchmarked = pytest.importorskip("stiefel_experiments.bench.runs").FORMAT
DOCS = Path(__file__).parent.parent / "docs"

FUZZ = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "120")),
    derandomize="FUZZ_EXAMPLES" not in os.environ,  # the soak asks for other inputs
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def matrix_market():
    A = scipy.sparse.random_array((6, 6), density=0.5, rng=np.random.default_rng(0))
    buffer = io.BytesIO()
    scipy.io.mmwrite(buffer, scipy.sparse.coo_array(A + A.T), symmetry="symmetric")
    return buffer.getvalue()


def npz():
    buffer = io.BytesIO()
    scipy.sparse.save_npz(buffer, scipy.sparse.csr_array(scipy.sparse.eye_array(6)), False)
    return buffer.getvalue()


@st.composite
def damaged(draw, data):
    """Bytes of a good file: cut, flipped, doubled, spliced with others."""
    result = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(result) - 1, 0)))
        match draw(st.integers(0, 4)):
            case 0:
                del result[place:]
            case 1 if result:
                result[place] = draw(st.integers(0, 255))
            case 2:
                result[place:place] = draw(st.binary(max_size=8))
            case 3:
                result[place:place] = draw(
                    st.sampled_from([b"-1", b"1e400", b"nan", b"99999999999999999999", b"\n", b"%"])
                )
            case _:
                result += result[place : place + 40]
    return bytes(result)


def load(path, data):
    path.write_bytes(data)
    try:
        return matrices.load_symmetric(path, 2)
    except output.Misuse:
        return None


@pytest.mark.parametrize("make", [matrix_market, npz])
def test_a_good_matrix_is_read(make, tmp_path):
    assert load(tmp_path / "a", make()) is not None


@FUZZ
@given(damaged(matrix_market()))
def test_damaged_matrix_market_files(tmp_path_factory, data):
    A = load(tmp_path_factory.getbasetemp() / "a.mtx", data)
    assert A is None or np.isfinite(A.data).all()


@pytest.mark.parametrize("end", [b"3.8E", b"3.8\xfd2", b"3.8", b"3.8 ", b"-", b""])
def test_a_matrix_that_ends_in_the_middle_of_a_number(end, tmp_path):
    """Found by fuzzing: SciPy's reader crashed the process."""
    head = b"%%MatrixMarket matrix coordinate real symmetric\n6 6 3\n1 1 1.9\n2 1 "
    assert load(tmp_path / "a.mtx", head + end) is None


@FUZZ
@given(damaged(npz()))
def test_damaged_npz_files(tmp_path_factory, data):
    A = load(tmp_path_factory.getbasetemp() / "a.npz", data)
    assert A is None or np.isfinite(A.data).all()


def test_a_member_with_an_endless_header_is_not_unpacked(tmp_path, monkeypatch):
    """NumPy reads as much header as a member announces, up to 4 GiB, before it looks at it."""
    monkeypatch.setattr(matrices, "memory_limit", lambda: 100_000)
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("shape.npy", b"\x93NUMPY\2\0" + (10**6).to_bytes(4, "little") + b" " * 10**6)
    monkeypatch.setattr(zipfile.ZipFile, "open", None)  # no member is opened
    with pytest.raises(output.Misuse, match="unpacks to"):
        matrices.load_symmetric(path, 2)


@FUZZ
@given(st.binary(max_size=300))
def test_any_bytes(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp()
    for head in (b"", b"PK\3\4", b"%%MatrixMarket matrix coordinate real symmetric\n"):
        load(folder / "any", head + data)
    path = folder / "any.npz"
    path.write_bytes(data)
    with pytest.raises(archive.ArchiveError):
        archive.read(path)
    for read in (reproduced.load, benchmarked.load):
        with contextlib.suppress(records.RecordError):
            read(path)


@FUZZ
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(["run", "array", "k", "local.f", "x"]), inner),
        ),
        max_leaves=8,
    )
)
def test_any_json(tmp_path_factory, document):
    """A record file and the body of a checkpoint, with any JSON in them."""
    path = tmp_path_factory.getbasetemp() / "records.jsonl"
    path.write_text(json.dumps(document) + "\n")
    for read in (reproduced.load, benchmarked.load):
        with pytest.raises(records.RecordError):
            read(path)
    flat = document if isinstance(document, dict) else {"x": document}
    with contextlib.suppress(archive.ArchiveError):
        thaw(State, {f"state.{name}": value for name, value in flat.items()}, "state")


LOADERS = {
    "reproduce": (reproduced, DOCS / "reproduction" / "table1.jsonl"),
    "bench": (benchmarked, DOCS / "benchmarks" / "bench.jsonl"),
}


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize(
    "text",
    [b"[" * 100_000 + b"\n", b"\xff\xfe\n", b"NaN\n", b"1" * 5000 + b"\n", b"{}\n", b"[]\n"],
    ids=["nested", "not UTF-8", "NaN", "a huge number", "empty", "a list"],
)
def test_lines_that_are_no_records_are_refused(kind, text, tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_bytes(text)
    with pytest.raises(records.RecordError):
        LOADERS[kind][0].load(path)


@pytest.mark.parametrize("kind", LOADERS)
def test_every_field_that_a_report_uses_is_checked(kind, tmp_path):
    """Each field in turn missing, or of a wrong type, or absurd: refused, or as good as before."""
    form, source = LOADERS[kind]
    line = json.loads(source.read_text(encoding="utf-8").splitlines()[0])
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(line) + "\n")
    assert form.load(path) == [line]
    refused, unused = 0, {"parameters", "versions", "machine", "seconds", "error", "feasibility",
                          "relative_gradient", "environment", "iterations"}  # fmt: skip
    for where, names in ((("run",), line["run"]), ((), line)):
        for name in names:
            for value in (..., "x", -1, [], {}, 10**400, True, 1e999):
                record = json.loads(json.dumps(line))
                part = record["run"] if where else record
                part[name] = value
                if value is ...:
                    del part[name]
                path.write_text(json.dumps(record) + "\n")
                try:
                    found = form.load(path)
                except records.RecordError as error:
                    refused += "line 1" in str(error)
                else:
                    assert form.sort(found)
                    assert value is not ... or name in unused
    assert refused > 60


# -- processes -----------------------------------------------------------------------------


PROGRAM = """
import multiprocessing, sys
sys.path.insert(0, sys.argv[2])
import numpy as np
from process_solve import solve

if __name__ == "__main__":
    alone = [solve(seed) for seed in range(4)]  # before the fork: caches are filled
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        others = pool.map(solve, range(4))
    assert all(np.array_equal(a, b) for a, b in zip(alone, others))
    print("same")
"""


@pytest.mark.parametrize("way", multiprocessing.get_all_start_methods())
def test_processes_give_the_same_bits(way, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), way, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.stdout.strip() == "same", done.stderr


def test_bits_do_not_depend_on_the_hash_seed():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from process_solve import solve; "
        "print(solve(0).tobytes().hex())"
    )
    outs = {
        subprocess.run(
            [sys.executable, "-c", code, str(Path(__file__).parent)],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "PYTHONHASHSEED": str(seed), "OPENBLAS_NUM_THREADS": "1"},
        ).stdout
        for seed in (1, 2)
    }
    assert len(outs) == 1
    assert len(outs.pop()) > 600


def test_the_package_neither_evaluates_nor_unpickles():
    forbidden = {"eval", "exec", "compile", "__import__"}
    modules = {"pickle", "marshal", "shelve", "urllib", "requests", "ftplib", "http"}
    for path in Path(stiefel.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in forbidden, (path, node.lineno)
            if isinstance(node, ast.Import):
                assert not modules & {a.name.partition(".")[0] for a in node.names}, path
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] not in modules, path
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert node.value.value is False, path
