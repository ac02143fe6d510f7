"""data_plane.broker.config: what can be configured, and what a configuration comes to.

- definition.py: types, validators, one definition per property
- topic_definitions.py, broker_definitions.py, compatibility_definitions.py, group_definitions.py:
  the tables
- effective.py: static, dynamic and default values resolved into one answer
"""
