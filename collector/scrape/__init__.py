"""Scrapes `/metrics` of engines, for servers without our instrumentation."""
