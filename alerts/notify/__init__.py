"""From an incident to a person: a message, the channels it goes through, and its delivery."""
