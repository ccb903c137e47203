"""The sizes of a Swin layer, for the network and its kernels. This file needs neither PyTorch nor Triton.

A width of 180 and a head size of 30 do not suit a GPU: rows of 360 bytes break the 16-byte alignment that
fast memory access needs. The kernels compute with 192 and 32 instead; the surplus channels have zero weights.
"""

WINDOW = 8  # pixels on a side
AREA = WINDOW * WINDOW
SHIFT = WINDOW // 2  # of the windows of every second layer
GROUPS = (7, 6)  # layers in each residual group of Pro
WIDTH, HEADS, HEAD = 180, 6, 30
ALIGNED_WIDTH, ALIGNED_HEAD, ALIGNED_HIDDEN = 192, 32, 384
