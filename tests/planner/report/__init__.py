"""Tests of the weekly report."""
