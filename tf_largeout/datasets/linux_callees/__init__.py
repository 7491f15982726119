"""C function signature and path -> the functions it calls."""
