"""kill -9 and its consequences, with real processes and real clients."""
