"""The contract between a cell and its control plane: the gRPC service CellAdmin.

`cell_admin.proto` is the contract; the other modules are generated from it by
`scripts/generate_contract`. Nothing else of the data plane is known to a control plane, and nothing
else of a control plane to the data plane.
"""
