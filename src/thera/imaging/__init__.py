"""Image files with all they carry, and scaling them in bounded memory."""

#: The best model that a laptop runs on a photograph of one megapixel in about a minute.
DEFAULT_MODEL = "edsr-plus"
