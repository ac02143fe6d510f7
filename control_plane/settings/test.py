"""Tests: a database that the fixtures name, caches in memory, cheap password hashes."""

from __future__ import annotations

from control_plane.settings.base import *  # noqa: F403
from control_plane.settings.base import DATABASES

DEBUG = False
SECRET_KEY = "for-tests-only-" + "x" * 50
ALLOWED_HOSTS = ["testserver", "localhost"]
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "tests"}
}
CELERY_BROKER_URL = "memory://"
# pytest shows what is logged, with the test that it belongs to.
LOGGING = {}
# A pool of connections outlives the test database that it is connected to.
DATABASES["default"]["OPTIONS"] = {}
# No static files are collected here.
WHITENOISE_AUTOREFRESH = True
