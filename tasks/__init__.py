"""The steps of a flow: thin tasks over `kernels`, each with its one contact to the outside."""
