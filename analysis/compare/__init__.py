"""Separate the effect of a change from the effects of a different mix of requests and a different
load."""
