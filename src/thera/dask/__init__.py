"""Scaling arrays that are larger than memory, on as many machines as there are: `thera.dask.upscale`.

Dask schedules, moves and stores; Thera says what each task needs and what it makes of it.
"""

from thera.optional import require

require("dask.array", "dask", "thera.dask")

from thera.dask.arrays import upscale  # noqa: E402

__all__ = ["upscale"]
