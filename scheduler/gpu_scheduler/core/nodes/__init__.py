"""What nodes there are, and which devices they have.

LAW: knows no hold.
"""
