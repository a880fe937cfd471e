"""Scrape `/metrics` of engines, for servers without Tailspan's plugin."""
