"""What samples mean: which values stand for black and white, which bands are colour, what is no data."""
