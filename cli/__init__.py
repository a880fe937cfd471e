"""The `tailspan` command. The modules parse options and print results."""
