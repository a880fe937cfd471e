"""Objectives, how fast their error budgets burn, and the rules that wake someone."""
