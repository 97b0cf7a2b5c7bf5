"""The error of a user's input."""


class InputError(ValueError):
    """Something that the user gave is wrong; the message is one sentence that says what, where and what to do."""
