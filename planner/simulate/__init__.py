"""Continuous batching, step by step, skipping what is alike: what a trace of requests would have seen."""
