"""Shares of causes by counterfactual replay: the latency of the slow requests without each
cause."""
