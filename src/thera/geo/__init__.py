"""Georeferenced rasters: any number of bands, any size, nodata, coordinate systems (extra `geo`)."""
