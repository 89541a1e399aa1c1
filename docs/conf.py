"""The site: `python docs/build.py` makes it in docs/_build/html, without the network."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import stiefel  # noqa: E402

project = "stiefel"
author = copyright = "The stiefel developers"
version = release = stiefel.__version__

extensions = [
    "myst_parser",
    "api_pages",  # one page for each public name
    "sphinx.ext.autodoc",
    "numpydoc",
    "mathml",  # formulas as MathML, which browsers draw themselves, with a bundled font
    "gallery",  # examples/*.py become pages with their output and their picture
    "program_help",  # the command line's own help
]
exclude_patterns = ["_build", "_ext"]

nitpicky = True
default_role = "code"
language = "en"

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

autodoc_typehints = "none"  # numpydoc's sections say the types, in words
autodoc_inherit_docstrings = False
nitpick_ignore_regex = [("py:.*", r"(torch|jax|optax|numpy|scipy|sklearn|pyscf)\..*")]
autodoc_member_order = "bysource"
add_module_names = False
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = "stiefel"
html_logo = html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["stiefel.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "stiefel"},
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
html_context = {"default_mode": "auto"}
html_sidebars = {"index": []}
