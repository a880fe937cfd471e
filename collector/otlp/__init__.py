"""Receives OTLP over gRPC and HTTP, and reads the messages."""
