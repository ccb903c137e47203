"""Triton kernels for NVIDIA GPUs. README.md in this folder explains them.

Nothing is imported here: `available` needs PyTorch only, and every other file needs Triton.
"""
