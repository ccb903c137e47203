"""The ConvNeXt block: `block` is the whole of it; `depthwise`, `norm` and `weights` are parts."""
