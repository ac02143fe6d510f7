"""data_plane.broker.cell: this broker as a member of its cell.

- broker_lifecycle.py: heartbeats, registration, the controller's lease; controlled_shutdown.py
- metadata_follower.py, metadata_writer.py: images in, commits out
- image_steps.py, image_application.py: a new image takes effect, in steps when it is large
- update_features.py: the finalized levels of features
- deletion_guard.py: whether anything may be deleted now
- cell_view.py, controller_settings.py: the image and the configuration, as others ask for them

What exists is data_plane.cell's; what follows from it for replicas is the room replicas.
"""
