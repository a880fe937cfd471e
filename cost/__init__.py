"""The cost of requests and the bill of the fleet. Pure: no clock, socket or SQL."""
