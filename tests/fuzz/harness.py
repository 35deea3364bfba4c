"""One target under the fuzzer. Usage: harness.py TARGET CORPUS… [an option of libFuzzer]."""

from __future__ import annotations

import logging
import sys

import atheris

# Logging each invalid input would cost more than the input itself.
logging.disable(logging.CRITICAL)

with atheris.instrument_imports(include=["gpu_scheduler"]):
    from tests.fuzz.targets import TARGETS

if __name__ == "__main__":
    name, *options = sys.argv[1:]
    atheris.Setup([sys.argv[0], *options], TARGETS[name].check)
    atheris.Fuzz()
