"""data_plane.log: one partition's log on disk, and the folds over it. See docs/log.md."""
