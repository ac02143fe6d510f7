"""The data plane: the brokers of a cell and everything they are made of."""
