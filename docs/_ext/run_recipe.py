"""run_recipe.py SCRIPT FOLDER: runs a script, and saves the figures that it leaves open."""

import os
import runpy
import sys
import tempfile
from pathlib import Path

script, folder = (Path(argument).resolve() for argument in sys.argv[1:])
os.chdir(tempfile.mkdtemp())
sys.argv = [str(script)]
runpy.run_path(str(script), run_name="__main__")

if "matplotlib.pyplot" in sys.modules:
    import matplotlib.pyplot as plt

    for i in plt.get_fignums():
        plt.figure(i).savefig(folder / f"{i}.png", dpi=150, bbox_inches="tight")
