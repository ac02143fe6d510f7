"""Settings, all from the environment: production, development and test differ in defaults alone."""
