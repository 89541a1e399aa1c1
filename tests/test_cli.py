"""The command line as a process: help, exit codes, terminals good and bad."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from cli_tools import COMMAND, environment, stiefel, stiefel_here
from stiefel.cli import output

pytest.importorskip("stiefel_experiments", reason="needs pip install ./experiments")

SMALL = ("--quick", "--starts", "1", "--largest", "100")  # three runs at n = 100


def run_in_terminal(arguments: list[str], **extra: str) -> tuple[int, str, str]:
    """Exit code, standard output through a pipe, and what a terminal on standard error saw."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=slave,
        stdin=subprocess.DEVNULL,
        env=environment(TERM="xterm-256color", **extra),
        text=True,
    )
    os.close(slave)
    seen = b""
    try:
        while chunk := os.read(master, 4096):
            seen += chunk
    except OSError:
        pass  # Linux reports the end of a pseudo-terminal as an error
    os.close(master)
    assert process.stdout is not None
    out = process.stdout.read()
    return process.wait(timeout=100), out, seen.decode(errors="replace")


@pytest.mark.parametrize("command", [[], ["reproduce"], ["bench"], ["eigs"], ["info"]])
def test_help_has_an_example_and_exit_code_zero(command: list[str], tmp_path: Path) -> None:
    result = stiefel_here(*command, "--help", cwd=tmp_path)
    assert result.exit_code == 0
    assert "Usage:" in result.stdout
    assert not command or f"Example:  stiefel {command[0]}" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["reproduce", "figure3"],
        ["reproduce"],
        ["reproduce", "table1", "--starts", "0"],
        ["reproduce", "table1", "--starts", "many"],
        ["reproduce", "table1", "--jobs", "-1"],
        ["reproduce", "table1", "--seed", "-1"],
        ["reproduce", "table1", "--redraw", "--out", "nothing-here"],
        ["nonsense"],
        ["info", "--xml"],
    ],
    ids=" ".join,
)
def test_misuse_is_a_sentence_and_exit_code_two(arguments: list[str], tmp_path: Path) -> None:
    result = stiefel_here(*arguments, cwd=tmp_path)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.strip() and "Traceback" not in result.stderr


def test_misuse_as_a_process(tmp_path: Path) -> None:
    result = stiefel("reproduce", "figure3", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stdout == "" and "figure3" in result.stderr and "Traceback" not in result.stderr


def test_an_output_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("not a directory")
    result = stiefel("reproduce", "figure1", *SMALL, "--out", tmp_path / "taken")
    assert result.returncode == 2
    assert "taken" in result.stderr and "Traceback" not in result.stderr
    assert (tmp_path / "taken").read_text() == "not a directory"


def test_a_damaged_record_is_refused_and_left_alone(tmp_path: Path) -> None:
    record = tmp_path / "figure1.jsonl"
    record.write_text('{"run": 1}\n{"run": 2}\n')
    result = stiefel("reproduce", "figure1", *SMALL, "--resume", "--out", tmp_path)
    assert result.returncode == 2
    assert "line 1 is not a record" in result.stderr and "Traceback" not in result.stderr
    assert record.read_text() == '{"run": 1}\n{"run": 2}\n'


def test_info_names_the_libraries_in_both_forms() -> None:
    import numpy

    found = json.loads(stiefel("info", "--json").stdout)
    assert found["versions"]["numpy"] == found["array libraries"]["numpy"] == numpy.__version__
    assert found["threads"]["OPENBLAS_NUM_THREADS"] == "1"
    text = stiefel("info").stdout
    assert numpy.__version__ in text and "OPENBLAS_NUM_THREADS" in text


def test_without_the_extra_there_is_one_sentence() -> None:
    code = "import sys; sys.modules['typer'] = None; import stiefel.cli; stiefel.cli.main()"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment()
    )
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert "typer" in result.stderr and "pip install typer" in result.stderr


@pytest.mark.parametrize("arguments", [["reproduce", "table1", "--starts", "1"], ["bench"]])
def test_without_the_experiments_one_sentence_says_how_to_get_them(arguments: list[str]) -> None:
    code = (
        "import importlib.metadata as m, sys; m.entry_points = lambda **_: (); "
        f"sys.argv[1:] = {arguments!r}; import stiefel.cli; stiefel.cli.main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment()
    )
    assert result.returncode == 2 and result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert "pip install ./experiments" in result.stderr


def test_a_broken_command_does_not_take_the_others_along() -> None:
    code = (
        "import importlib.metadata as m, sys; entry = m.EntryPoint('odd', 'no.such:register', 'x');"
        "m.entry_points = lambda **_: (entry,); "
        "sys.argv[1:] = [{!r}]; import stiefel.cli; stiefel.cli.main()"
    )
    for command, status, said in (("info", 0, "numpy"), ("odd", 2, "'odd' does not load")):
        result = subprocess.run(
            [sys.executable, "-c", code.format(command)], capture_output=True, text=True,
            env=environment(),
        )  # fmt: skip
        assert result.returncode == status and said in result.stdout + result.stderr


WORDS = ("accelerated, function restart", "16617.8", "(+4 not converged)", "paper's time (s)")


@pytest.mark.parametrize("width", [200, 80, 60, 30])
@pytest.mark.parametrize("columns", [2, 6, 10])
@pytest.mark.parametrize("rows", [1, 4, 20])
def test_no_table_breaks_a_word(
    width: int, columns: int, rows: int, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(output, "PIPE_WIDTH", width)
    cells = [[WORDS[(i + j) % 4] for j in range(columns)] for i in range(rows + 1)]
    output.print_table("A title", cells[0], cells[1:])
    seen = capsys.readouterr().out
    assert max(map(len, seen.splitlines())) <= width
    for mark in "┃│━╇:":
        seen = seen.replace(mark, " ")
    words = {word for line in cells for text in line for word in text.split()}
    assert set(seen.split()) == words | {"A", "title"}


def test_progress_never_says_minus_zero(capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    import stiefel as library

    A = np.diag(np.arange(1.0, 9.0))
    library.minimize(lambda X: (np.vdot(X, A @ X), 2 * A @ X), np.eye(8, 2)[::-1].copy() * 1.0,
                     progress=True, maxiter=3)  # fmt: skip
    library.minimize(lambda X: (np.vdot(X, A @ X), 2 * A @ X), library.random_point(8, 2, seed=1),
                     progress=True)  # fmt: skip
    said = capsys.readouterr().err
    assert "[  0 %]" in said and "-0 %" not in said


def test_a_narrow_terminal_without_colour_loses_no_digit(tmp_path: Path) -> None:
    arguments = ["reproduce", "figure1", *SMALL, "--out", str(tmp_path)]
    code, out, seen = run_in_terminal(arguments, COLUMNS="24", NO_COLOR="1")
    assert code == 0, seen
    assert "\x1b[3" not in seen and "\x1b[9" not in seen and "\x1b[1;3" not in seen  # no colours
    for line in (tmp_path / "figure1.jsonl").read_text().splitlines():
        assert str(json.loads(line)["iterations"]) in out


def test_the_progress_bar_is_for_terminals_only(tmp_path: Path) -> None:
    arguments = ["reproduce", "figure1", *SMALL, "--out", str(tmp_path), "--json"]
    code, out, seen = run_in_terminal(arguments)
    assert code == 0, seen
    assert "figure1" in seen and "%" in seen
    json.loads(out)  # nothing of it on standard output
    piped = stiefel(*arguments)
    assert piped.returncode == 0 and piped.stderr == ""
    assert "\x1b" not in piped.stdout
