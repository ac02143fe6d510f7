"""One machine: plain HTTP on loopback, mail to the console."""

from __future__ import annotations

from control_plane.settings.base import *  # noqa: F403
from control_plane.settings.base import env

DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = env.str("SECRET_KEY", default="for-development-only-" + "x" * 50)
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
REQUIRE_VERIFIED_EMAIL = env.bool("REQUIRE_VERIFIED_EMAIL", default=False)
ACCOUNT_EMAIL_VERIFICATION = "mandatory" if REQUIRE_VERIFIED_EMAIL else "none"
ACCOUNT_EMAIL_VERIFICATION_BY_CODE_ENABLED = REQUIRE_VERIFIED_EMAIL
# Everybody has the same address here.
ORGANIZATIONS_PER_ADDRESS_AND_DAY = env.int("ORGANIZATIONS_PER_ADDRESS_AND_DAY", default=1000)
# No static files are collected here.
WHITENOISE_AUTOREFRESH = True
