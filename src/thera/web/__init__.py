"""Fields in a browser: packed for its GPU, drawn by the modules in `page`, served on loopback or exported."""
