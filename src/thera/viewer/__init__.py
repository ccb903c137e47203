"""The viewer of `thera app` and `thera serve`: modules and style sheets for a browser."""

from importlib.resources import files
from pathlib import Path

#: The folder of the viewer's files, which are served as they are.
VIEWER = Path(str(files("thera"))) / "viewer" / "page"
