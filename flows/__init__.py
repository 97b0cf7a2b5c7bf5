"""The questions a user asks, each one flow: wiring of tasks and nothing else."""
