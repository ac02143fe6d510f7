"""What all of REST shares: who asks, problems, pages, idempotency, rate limits. No Django app.

Apps' `presentation` has the resources; `urls.py` here has all addresses.
"""
