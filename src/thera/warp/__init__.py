"""Warped pictures: homographies, lenses, and any other mapping from output pixels to input pixels."""
