"""Tests of recommendations."""
