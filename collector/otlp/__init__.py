"""Receive OTLP over gRPC and HTTP, and read the messages."""
