"""Compute how much each cause contributed to the growth of a latency, by counterfactual replay: the
requests are replayed without the cause."""
