"""One detector per cause: what it would look like, how much of the excess is its, what to do."""
