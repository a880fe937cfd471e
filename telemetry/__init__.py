"""The nouns that every part of Tailspan uses. Pure: no clock, no socket, no SQL."""
