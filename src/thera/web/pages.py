"""Where the page's files are."""

from importlib.resources import files
from pathlib import Path

#: The folder of index.html, the style sheets and the modules, served and read as they are.
PAGE = Path(str(files("thera"))) / "web" / "page"
