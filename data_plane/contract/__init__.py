"""The contract of a cell and its control plane: the gRPC services CellAdmin and CellOperations.

The two .proto files are the contract; the other modules are generated from them by
`scripts/generate_contract`. Nothing else of the data plane is known to a control plane, and nothing
else of a control plane to the data plane.
"""
