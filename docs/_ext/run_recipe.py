"""run_recipe.py SCRIPT FOLDER: runs a script, and saves the figures that it leaves open.

A script without a figure gets the picture of its last run, if it has one in `result`.
"""

import os
import runpy
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

script, folder = (Path(argument).resolve() for argument in sys.argv[1:])
os.chdir(tempfile.mkdtemp())
sys.argv = [str(script)]
left = runpy.run_path(str(script), run_name="__main__")

for i in plt.get_fignums():
    plt.figure(i).savefig(folder / f"{i}.png", dpi=150, bbox_inches="tight")
if not plt.get_fignums() and hasattr(left.get("result"), "history"):
    left["result"].plot(folder / "1.png")
