"""What samples mean: which values are black and white, which bands are colours, which samples are nodata."""
