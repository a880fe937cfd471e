"""The `tailspan` command: thin verbs over the parts."""
