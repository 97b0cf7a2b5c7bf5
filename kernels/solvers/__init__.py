"""Optimisation problems that several learners share; no learner is named here."""
