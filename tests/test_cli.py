"""The command line as a process: help, exit codes, terminals good and bad."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from cli_tools import COMMAND, environment, stiefel, stiefel_here

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


@pytest.mark.parametrize("command", [[], ["reproduce"], ["eigs"], ["info"]])
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
    assert "typer" in result.stderr and "stiefel[cli]" in result.stderr


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
