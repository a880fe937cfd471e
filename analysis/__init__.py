"""The questions that commands, pages and alerts share: they read the store and return an answer."""
