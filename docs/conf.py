"""The documentation site; ``make docs`` builds it into docs/_build. Nothing is fetched."""

from __future__ import annotations

import importlib.metadata
import re
from typing import Any

project = "fnintern"
author = "The fnintern authors"
copyright = author
release = version = importlib.metadata.version("fnintern")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True
# Names of the standard library and of jax that signatures and docstrings mention: the build has no
# network, so there is no inventory to look them up in.
nitpick_ignore_regex = [
    ("py:.*", r"(collections|types|typing|attrs|os|argparse|pytest)\..*"),
    ("py:(class|exc|func|obj|data)", r"[a-zA-Z]+"),
    ("py:(class|obj)", r"fnintern\..*\.(P|Q|R|S|T)"),  # type variables
    # What decorators return, for type checkers alone.
    ("py:class", r"fnintern\..*\.(Decorator|JitDecorator|JittedFunction)"),
    ("py:class", r"jax\..*"),
]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
highlight_language = "text"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_admonition_for_examples = False
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = "fnintern"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5f8a", "color-brand-content": "#0b5f8a"},
    "dark_css_variables": {"color-brand-primary": "#6cb6dd", "color-brand-content": "#6cb6dd"},
    "navigation_with_keys": True,
}

_LAW = re.compile(r"(?<![\w`])(?:I[1-6]|L[1-5]|C[12]|S[1-7])(?![\w`])")


def _link_laws(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """In docstrings a law is named by its code; on the page of the reference, with a link."""
    lines[:] = [
        _LAW.sub(lambda law: f"`{law[0]} <laws.html#{law[0].lower()}>`__", line) for line in lines
    ]


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _link_laws)
