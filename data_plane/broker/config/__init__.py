"""data_plane.broker.config: what can be configured, and what a configuration comes to.

- definition.py: types, validators, one definition per property
- topic_definitions.py, group_definitions.py, and broker_definitions.py over one module a theme
  (listener, log, coordinator, replication, unserved, tuning): the tables
- topic_properties.py: the topic properties of a broker, with those that features bring
- refused_properties.py: what stops the start, and why
- effective.py: static, dynamic and default values resolved into one answer
"""
