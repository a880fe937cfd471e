"""The OTLP receivers: gRPC and HTTP, JSON, message bodies, and the process that reads messages."""
