"""Nouns and arithmetic: pure, standard library and pydantic only."""
