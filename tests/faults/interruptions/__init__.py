"""Commands killed, out of space, without permission or robbed of their output at every change of a file."""
