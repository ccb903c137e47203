"""Files that pages share: the viewer of `thera app` and `thera serve`, its modules and style sheets."""

from importlib.resources import files
from pathlib import Path

#: The folder of the viewer's files, which are served as they are.
VIEWER = Path(str(files("thera"))) / "pages" / "viewer"
