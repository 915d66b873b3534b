"""A real vLLM on the CPU, driven and recorded, and held against what its clients saw."""
