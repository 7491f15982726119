"""Class matrices on several machines: a server on each, and a trainer that connects to them."""
