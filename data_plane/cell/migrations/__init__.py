"""The store's schema, one file a version; `postgres_schema` applies them in order."""
