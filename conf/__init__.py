"""Configuration: one YAML file is one run; `conf.schema` says what it may hold."""
