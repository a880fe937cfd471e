"""Code inside the engine core: scheduler hooks, the step ledger, and the link to the front ends."""
