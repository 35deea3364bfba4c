"""The parts of the pages that are made from code and data: `make fmt` writes them, a contract test compares them."""
