"""Faults brought about on a real vLLM: each a cause of a slow tail, with the truth beside it."""
