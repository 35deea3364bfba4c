"""One verb, `doctor`: what an installation is made of (expected), what is there (facts), what is wrong (checks)."""
