"""Serving engines as tables: memory budget rule, flags and defaults by version. One file an engine, found by itself."""
