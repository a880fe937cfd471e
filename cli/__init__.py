"""The `tailspan` command. Its modules parse options and print results."""
