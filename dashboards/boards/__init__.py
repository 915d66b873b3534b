"""The boards: one module for each, from values to values."""
