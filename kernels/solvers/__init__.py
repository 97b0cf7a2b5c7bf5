"""Optimisers that several algorithms share, each with its certificate; free of learners and data sets.

May import `engine` and `families`.
"""
