"""``stiefel modes``: compressed modes of free electrons or of a lattice of wells."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from stiefel.applications.compressed_modes import compressed_modes, plot, wells

from .output import NOT_CONVERGED, Misuse, console, print_json, print_table, refusals


def register(app: typer.Typer) -> None:
    app.command("modes")(modes)


def modes(
    points: Annotated[list[int], typer.Option(help="Grid points; once for each dimension.")],
    length: Annotated[list[float], typer.Option(help="Box length; once for each dimension.")],
    number: Annotated[int, typer.Option(min=1, help="How many modes.")],
    mu: Annotated[float, typer.Option(help="Large is spread out, small is localised.")],
    well: Annotated[
        list[int] | None, typer.Option(help="Wells of the potential; once for each dimension.")
    ] = None,
    depth: Annotated[float, typer.Option(help="Depth of the wells.")] = 1.0,
    width: Annotated[float, typer.Option(help="Width of the wells.")] = 1.0,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Start from random functions of this seed.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the modes to a .npz file.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--plot", help="Draw the modes: .png, .pdf, .svg.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON for machines.")] = False,
) -> None:
    """Compute compressed modes: localised functions of least energy, on a periodic grid.

    Example:  stiefel modes --points 1000 --length 100 --number 10 --mu 5 --plot modes.png
    """
    with refusals(ValueError, OSError):
        counts = well or []
        if len(points) != len(length) or (counts and len(counts) != len(points)):
            raise Misuse("--points, --length and --well must be given once for each dimension")
        potential = wells(points, length, counts, depth, width) if counts else None
        modes = compressed_modes(points, length, number, mu, potential=potential, seed=seed)
        if output is not None:
            np.savez(output, functions=modes.functions, energies=modes.energies)
        if picture is not None:
            plot(modes, str(picture))
    success = all(r.success for r in modes.results)
    if as_json:
        print_json(
            {
                "energies": modes.energies.tolist(),
                "extents": modes.extents().tolist(),
                "evaluations": modes.evaluations,
                "residual": modes.residual,
                "success": success,
            }
        )
    else:
        rows = [
            (str(j), f"{e:.8f}", f"{x:.4g}")
            for j, (e, x) in enumerate(zip(modes.energies, modes.extents(), strict=True))
        ]
        print_table(f"{number} compressed modes, μ = {mu:g}", ("mode", "energy", "support"), rows)
        console().print(
            f"energy {modes.energy:.8f} in {modes.evaluations} evaluations, "
            f"residual {modes.residual:.1e}"
        )
    if not success:
        raise typer.Exit(NOT_CONVERGED)
