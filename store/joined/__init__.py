"""Join the rows of several engines that served one request of a user. See README.md."""
