"""How much each cause contributed to the growth of a latency, from replays without the cause."""
