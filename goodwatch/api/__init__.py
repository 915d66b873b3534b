"""HTTP API and web pages."""
