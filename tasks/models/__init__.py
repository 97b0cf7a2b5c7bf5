"""Models from training to use: trained, registered, promoted, applied."""
