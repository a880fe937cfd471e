"""The nouns that every part of Tailspan speaks. Pure: no clock, no socket, no SQL."""
