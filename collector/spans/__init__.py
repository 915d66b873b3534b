"""Spans of engines, gateways and application SDKs become parts of requests; scores and texts that they carry."""
