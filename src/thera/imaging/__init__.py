"""Image files with all they carry, and scaling them in bounded memory."""

#: The best model that a laptop runs on a photograph of one megapixel in about half a minute.
DEFAULT_MODEL = "edsr-plus"
#: Its counterpart that sees through blur, noise and JPEG.
RESTORING_MODEL = "photo"
#: Chooses one of the two for every picture: what `thera upscale` does unless a model is named.
AUTO = "auto"
