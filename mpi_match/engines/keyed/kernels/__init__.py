"""The CUDA kernels of the keyed engine."""
