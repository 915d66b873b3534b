"""Exporters of accelerators, one module each: ``ACCELERATOR``, a table of the same shape as an engine's. Data."""
