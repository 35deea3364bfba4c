"""Manifests of users: files are read, and become the pods that their controllers would make, as admission leaves them.

LAW: pure, except that `files` reads files.
"""
