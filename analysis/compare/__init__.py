"""Compare latencies before and after a change, at the same mix of requests and the same load."""
