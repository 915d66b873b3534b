"""goodwatch: goodput, cost and capacity for people who run LLM inference themselves."""

__version__ = "0.1.0"
