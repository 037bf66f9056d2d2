"""`breakpoint()` in workers: pdb there, a controller in the client's process, an operator at a TCP connection."""
