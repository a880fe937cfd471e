"""Explain joined requests, and compute their statistics: see store/joined/README.md."""
