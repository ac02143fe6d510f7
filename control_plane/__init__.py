"""The control plane: tenants, topics, keys and quotas, declared by REST and kept in Postgres. No
cell is told of them yet. See docs/control-plane.md.

Of the data plane it may import the contract alone."""
