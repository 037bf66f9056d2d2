"""What can go wrong with a guest."""


class VmError(Exception):
    """No guest, or none that does what it should. Says the step, and the last lines of the console."""
