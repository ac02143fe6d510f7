"""What an ASGI server runs; control_plane/serve.py is ours."""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings.production")
application = get_asgi_application()
