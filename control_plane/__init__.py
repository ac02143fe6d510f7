"""The control plane: tenants, topics, keys, quotas and usage, declared by REST and reconciled into
cells. See docs/control-plane.md.

Of the data plane it imports the contract alone: cells are met over gRPC."""
