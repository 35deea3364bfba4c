"""Input and output: the only importers of third parties beside the command line and the settings.

No rule about placement lives here; what is decided comes from core, what is wired together comes from cli.
"""
