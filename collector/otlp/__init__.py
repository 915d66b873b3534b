"""The OTLP receiver: traces, evaluation events and GenAI metrics over HTTP and gRPC, acknowledged once they are kept."""
