"""How long what we issue is valid, unless somebody says otherwise.

Apart from the settings, because every `--help` of the command line loads it.
"""

from typing import Final

CA_DAYS: Final = 3650
SERVING_DAYS: Final = 365
RENEW_DAYS: Final = 30
"""A certificate with fewer days left is renewed."""
