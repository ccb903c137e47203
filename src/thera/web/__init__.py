"""`thera app`: pictures in a browser on the same computer, drawn live from their fields, or exported."""
