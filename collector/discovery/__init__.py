"""Where targets are found while the service runs: DNS, Kubernetes, a Prometheus. One file a mechanism."""
