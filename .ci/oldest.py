"""The oldest versions that pyproject.toml allows, as constraints for pip, of the extras named.

pip install -c <(python .ci/oldest.py cli jax) -e '.[cli,jax]'
"""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
groups = [project["dependencies"], *(project["optional-dependencies"][e] for e in sys.argv[1:])]
for requirement in (r for group in groups for r in group):
    if found := re.fullmatch(r"([\w-]+)>=([\w.]+)", requirement):
        print("==".join(found.groups()))
