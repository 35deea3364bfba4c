"""The checks: each is a pure function that yields what is wrong with the facts, nothing if all is well."""
