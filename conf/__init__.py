"""Configuration: one YAML file is one run; `conf.schema` defines its keys."""
