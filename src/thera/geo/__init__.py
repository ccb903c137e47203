"""Rasters with a place on the ground: any number of bands, any size, nodata, coordinates (extra `geo`)."""
