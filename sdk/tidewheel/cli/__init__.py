"""The command line: `tidewheel produce|consume|topics|groups|lag`."""
