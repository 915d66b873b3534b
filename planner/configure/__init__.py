"""Configurations of engines: a neutral value, its forms per engine and version, and what changes from one to another."""
