"""What a deployment costs: prices of GPU-hours, cost of tokens, comparison with an API, and what would lower it."""
