"""The ConvNeXt block: `block` is the whole of it, `depthwise` and `weights` are parts."""
