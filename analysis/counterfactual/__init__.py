"""Shares of causes by counterfactual replay: what the slow tail would be without each cause."""
