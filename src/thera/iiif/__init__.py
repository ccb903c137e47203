"""The IIIF Image API 3.0 over a folder of images: `thera serve`."""
