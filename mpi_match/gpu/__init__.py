"""NVIDIA GPUs: the driver, kernels and their launches, device and pinned memory."""
