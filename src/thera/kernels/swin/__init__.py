"""The Swin layer: `layer` is the whole of it; `attention`, `mlp`, `norm` and `weights` are parts."""
