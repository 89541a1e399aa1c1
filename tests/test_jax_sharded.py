"""JAX arrays whose rows are sharded over devices go through the same kernels, without a gather."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import stiefel

pytest.importorskip("jax")


def test_rows_on_two_devices_are_never_gathered():
    program = Path(__file__).with_name("jax_sharded_program.py")
    done = subprocess.run(
        [sys.executable, str(program)],
        env=os.environ | {"PYTHONPATH": str(Path(stiefel.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
