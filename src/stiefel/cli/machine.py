"""What a count or a time was measured with; no names of hosts, users or directories."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

import numpy as np

THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
)


def versions() -> dict[str, str]:
    from stiefel import __version__

    return {
        "stiefel": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": metadata.version("scipy"),
    }


def machine() -> dict[str, Any]:
    return {
        "system": platform.system(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "blas": blas(),
        "threads": os.environ.get("OPENBLAS_NUM_THREADS", "unset"),
    }


def processor() -> str:
    """The model of the processor where the system tells, else its architecture."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    return platform.machine()


def blas() -> str:
    """The name and version of NumPy's BLAS."""
    try:
        config: Any = np.show_config(mode="dicts")
        found = config["Build Dependencies"]["blas"]
        return f"{found['name']} {found['version']}"
    except (KeyError, TypeError):
        return "unknown"
