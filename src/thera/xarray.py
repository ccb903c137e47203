"""`.thera.upscale(...)` on xarray's arrays and datasets; importing this module adds it."""

from thera.dask.accessor import Accessor

__all__ = ["Accessor"]
