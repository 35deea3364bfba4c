"""A file a verb, or a few that are alike."""
