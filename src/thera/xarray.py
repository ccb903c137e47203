"""`.thera.upscale(...)` on xarray's arrays and datasets; importing this module adds it."""

from thera.dask.accessor import ArrayAccessor, DatasetAccessor

__all__ = ["ArrayAccessor", "DatasetAccessor"]
