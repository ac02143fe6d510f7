"""People, organizations (which are the tenants), who is a member of which, and invitations."""
