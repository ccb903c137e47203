"""Options of a job on rasters or pictures, from keywords."""

from thera.tiled import Options


def split(kind, **given):
    """(Options, kind): the keywords that `Options` has, and the others for `kind`."""
    own = {name: given.pop(name) for name in ("psf", "ensemble", "memory") if name in given}
    return Options(**own), kind(**given)
