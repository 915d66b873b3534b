"""Configuration, wiring, scheduling: the only place that knows every adapter."""
