"""Finds one request, the best row of each, its neighbours and rank; stores requests in flight."""
