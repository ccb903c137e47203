"""Image files with all they carry, and scaling them in bounded memory."""
