"""Talks to the API server: lists, watches, leader election, requests.

LAW: makes no scheduling decision; logs with the standard library.
"""
