"""Why a pod waits, in full: every obstacle of every place that it could have, and the smallest remedy.

LAW: the filters and strategies of the decision answer. This folder asks them all and hides no answer.
"""
