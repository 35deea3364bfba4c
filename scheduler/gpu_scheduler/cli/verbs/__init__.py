"""The verbs. Each file has one verb, or several similar ones."""
