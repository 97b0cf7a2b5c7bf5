"""The items of the papers that are made again, a YAML file each, and the catalogue of their data sets."""
