"""Real tables, the same rows for everyone: the estimators as they come beside what else a user would take."""
