"""Connections, requests and watches over HTTP/1.1.

LAW: knows no kind of API object.
"""
