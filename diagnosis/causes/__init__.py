"""One detector per cause. A detector claims a share of the excess and gives evidence and levers."""
