"""The embedded single-machine stack: brokers as processes on loopback, and the demo."""
