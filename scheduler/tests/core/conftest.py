"""One profile for all properties: enough examples to meet the corners, few enough that the unit ring stays quick."""

from hypothesis import settings

settings.register_profile("unit", max_examples=60, stateful_step_count=30, deadline=None)
settings.load_profile("unit")
