"""`.thera.upscale(...)`, `.reduce(...)` and `.warp(...)` for xarray's arrays and datasets: import this."""

from thera.dask.accessor import Accessor

__all__ = ["Accessor"]
