"""The API server: lists, watches, leader election, requests.

LAW: decides nothing; logs with the standard library.
"""
