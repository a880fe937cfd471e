"""The cost of requests, and the bill that consists of these costs. Pure: no clock, socket or
SQL."""
