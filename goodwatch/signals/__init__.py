"""Derivations over polars frames: goodput, latency, saturation, cost. Pure."""
