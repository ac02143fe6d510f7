"""Subscriptions: a consumer group reads only the records whose tags match a filter.

    tags.py         the header `tw-tag`, and the sets of tags as they are stored
    language.py     the filter language: from text to an expression
    matching.py     an expression made into something that answers fast, for one set after the other

Deliberately absent: the payload of records, which is never looked at.
"""
