"""The growth from baseline to window: terms of the latency, changes of the traffic, the backlog."""
