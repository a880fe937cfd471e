"""Join the rows of the engines that served one user's request: see README.md."""
