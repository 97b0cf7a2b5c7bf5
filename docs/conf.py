"""How Sphinx builds the site: `make docs`. Nothing is fetched, neither by the build nor by who reads what was built."""

from __future__ import annotations

import sys
import tomllib
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

warnings.filterwarnings(
    "ignore", message="FigureCanvasAgg is non-interactive", category=UserWarning
)

project = "learnkernels"
author = "the authors of learnkernels"
version = release = tomllib.loads(
    (HERE.parent / "pyproject.toml").read_text(encoding="utf-8")
)["project"]["version"]

extensions = [
    "myst_parser",  # the pages of this folder are Markdown
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_design",  # cards and columns
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "site_parts",
]
exclude_patterns = [
    "chapters",
    "examples",
    "templates",
    "gallery/*.ipynb",
    "guide/*.ipynb",
    "**/GALLERY_HEADER.rst",
]
templates_path = ["templates"]
nitpicky = False
language = "en"
default_role = "literal"
# a page that is included begins at the level where it is put
suppress_warnings = ["myst.header"]

myst_enable_extensions = ["colon_fence", "attrs_inline"]
myst_heading_anchors = 4

autosummary_generate = False
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # the docstrings say them, with shapes
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = f"learnkernels {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_center": [],  # all pages stand in the sidebar, below the captions of the index
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["last-updated"],
    "footer_end": [],
    "show_prev_next": True,
    "show_toc_level": 2,
    "navigation_depth": 3,
}
html_sidebars = {"**": ["navigation.html"]}

copybutton_exclude = ".linenos, .gp"

sphinx_gallery_conf = {
    "examples_dirs": ["chapters", "examples"],
    "gallery_dirs": ["guide", "gallery"],
    "filename_pattern": r"\.py$",
    "within_subsection_order": "site_parts.GalleryOrder",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "remove_config_comments": True,
    "thumbnail_size": (400, 280),
    "doc_module": ("learnkernels",),
    "backreferences_dir": "gallery/uses",  # which examples use a name: below its entry in the reference
    "nested_sections": False,
}
