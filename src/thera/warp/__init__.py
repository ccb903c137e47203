"""Pictures through mappings: homographies, lenses, and any other way from output pixels to input pixels."""
