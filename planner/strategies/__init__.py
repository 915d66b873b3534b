"""Kinds of advice: one file each, found by itself."""
