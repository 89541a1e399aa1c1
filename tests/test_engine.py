"""The engine of the experiments: processes that die, hang and are interrupted lose no record."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli_tools import COMMAND, environment, stiefel
from engine_jobs import Run, execute

pytest.importorskip("stiefel_experiments", reason="needs pip install ./experiments")

from stiefel_experiments import Report, Request, Spec, perform, pool, records
from stiefel_experiments.engine import WorkerError
from stiefel_experiments.pool import Lost, run_all
from stiefel_experiments.rendering import Table
from stiefel_experiments.reproduce.runs import FORMAT as FORMAT_OF_THE_PAPER

FORMAT = records.Format(Run, {"number": records.count, "act lane": records.text,
                              "limit cost": records.number}, {"run": records.mapping})  # fmt: skip


def spec(runs, **more):
    report = Report("Runs", Table(("n",), ()), (), (), {"runs.md": b"done\n"})
    return Spec("runs", runs, FORMAT, execute, lambda found: report, lambda run: True, **more)


def interrupt(ended, done, total):
    raise KeyboardInterrupt


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_what_goes_wrong_in_a_process_costs_its_run_and_nothing_else(capfd, monkeypatch):
    monkeypatch.setattr(pool, "GRACE", 0.0)
    monkeypatch.setattr(pool, "PATIENCE", 1.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    acts = ("work", "die", "work", "raise", "interrupted", "leave", "hang", "work")
    runs = [Run(i, act, limit=3.0 if act == "hang" else 500.0) for i, act in enumerate(acts)]
    found = {run.number: answer for run, answer in run_all(execute, runs)}
    assert sorted(found) == list(range(8))
    good = [found[i] for i, act in enumerate(acts) if act in ("work", "interrupted")]
    assert all(answer["threads"] == ["1", "1"] for answer in good)  # whatever the parent has
    assert found[1] == Lost("its process ended; it said: noise of run 1")
    assert found[3] == Lost("LookupError: nobody is there")
    assert isinstance(found[5], Lost) and "SystemExit" in found[5].why
    assert "did not end in time" in found[6].why
    assert "noise" not in "".join(capfd.readouterr())  # what libraries print is no output of ours
    assert not any(alive(answer["pid"]) for answer in good)


def test_lanes_have_processes_of_their_own_and_keep_them():
    runs = [Run(i, "work", lane="ab"[i % 2]) for i in range(6)]
    pids = {run.number: answer["pid"] for run, answer in run_all(execute, runs)}
    assert len({pids[i] for i in (0, 2, 4)}) == len({pids[i] for i in (1, 3, 5)}) == 1
    assert pids[0] != pids[1] and os.getpid() not in pids.values()


def test_jobs_are_processes_side_by_side():
    answers = [answer for _, answer in run_all(execute, [Run(i, "work") for i in range(6)], jobs=2)]
    assert len({answer["pid"] for answer in answers}) == 2


def test_a_process_killed_while_idle_is_replaced():
    series = run_all(execute, [Run(0, "work"), Run(1, "work")])
    _, first = next(series)
    os.kill(first["pid"], signal.SIGKILL)
    while alive(first["pid"]):
        time.sleep(0.01)
    (second,) = [answer for _, answer in series]
    assert isinstance(second, Lost) or second["pid"] != first["pid"]


def test_stopping_half_way_ends_the_processes():
    series = run_all(execute, [Run(0, "work"), Run(1, "hang")])
    _, first = next(series)
    series.close()
    assert not alive(first["pid"])


def test_a_lost_run_is_recorded_or_an_error_and_the_rest_is_kept(tmp_path):
    runs = [Run(0, "work"), Run(1, "die"), Run(2, "work")]
    with pytest.raises(WorkerError, match="the other records are kept"):
        perform(spec(runs), Request(tmp_path))
    assert [r["run"]["number"] for r in FORMAT.load(tmp_path / "runs.jsonl")] == [0]

    def lost(run, why):
        return {"run": vars(run), "status": "FAILED", "cpu_seconds": None}

    outcome = perform(spec(runs, lost=lost), Request(tmp_path, resume=True))
    assert [r["status"] for r in outcome.records] == ["CONVERGED", "FAILED", "CONVERGED"]
    assert outcome.found_before == 1 and len(outcome.failures) == 1
    assert (tmp_path / "runs.md").read_text() == "done\n"
    again = perform(spec(runs), Request(tmp_path, resume=True))
    assert again.found_before == 3 and again.records == outcome.records


def test_a_torn_line_and_a_repeated_run_do_not_survive_resuming(tmp_path):
    path = tmp_path / "runs.jsonl"
    perform(spec([Run(1, "work"), Run(0, "work")]), Request(tmp_path))
    zero, one = path.read_text().splitlines()
    assert [json.loads(line)["run"]["number"] for line in (zero, one)] == [0, 1]  # canonical order
    later = json.dumps(json.loads(zero) | {"pid": -5})
    path.write_text("\n".join([one, zero, later, one[:30]]))
    rest = spec([Run(2, "work"), Run(3, "work")])
    with pytest.raises(KeyboardInterrupt):  # the line that follows is whole, too
        perform(rest, Request(tmp_path, resume=True), progress=interrupt)
    assert [r["run"]["number"] for r in FORMAT.load(path)] == [0, 1, 2]
    outcome = perform(rest, Request(tmp_path, resume=True))
    assert [r["pid"] for r in outcome.records][:2] == [-5, json.loads(one)["pid"]]
    assert len(path.read_text().splitlines()) == 4 and outcome.found_before == 3


def test_control_c_leaves_a_record_that_can_be_resumed(tmp_path):
    small = ["reproduce", "figure1", "--quick", "--starts", "8", "--largest", "1000"]
    small += ["--descent-largest", "100"]
    process = subprocess.Popen(
        [*COMMAND, *small, "--jobs", "2", "--out", str(tmp_path)], env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell may ignore it
    )  # fmt: skip
    record = tmp_path / "figure1.jsonl"
    for _ in range(6000):
        if record.exists() and record.read_text().count("\n") >= 3:
            break
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume" in said and "Traceback" not in said
    done = FORMAT_OF_THE_PAPER.load(record)
    assert len(done) >= 3
    result = stiefel(*small, "--out", tmp_path, "--resume", "--json")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)["figure1"]
    assert answer["executed"] == answer["records"] - len(done) > 0


def test_workers_do_not_outlive_a_killed_parent(tmp_path):
    program = (
        "import sys; from engine_jobs import Run, execute; from stiefel_experiments.pool import "
        "run_all\nfor _, answer in run_all(execute, [Run(0, 'work'), Run(1, 'hang')]):\n"
        "    print(answer['pid'], flush=True)"
    )
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=environment(PYTHONPATH=path),
    )  # fmt: skip
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    assert alive(worker)
    parent.kill()
    parent.wait()
    for _ in range(1000):
        if not alive(worker):
            return
        time.sleep(0.01)
    os.kill(worker, signal.SIGKILL)
    raise AssertionError("the worker went on for nobody")
