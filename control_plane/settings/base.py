"""What all deployments share. docs/control-plane.md lists the variables.

Nothing here has a default that would be unsafe in production: the other modules loosen what
development and tests need loose.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import environ
from redis.backoff import NoBackoff
from redis.retry import Retry

from control_plane.settings.logs import logging_settings

env = environ.Env()
ROOT = Path(__file__).resolve().parent.parent

INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.headless",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "control_plane.accounts",
    "control_plane.cells",
    "control_plane.messaging",
    "control_plane.access",
    "control_plane.quotas",
    "control_plane.operations",
    "control_plane.usage",
    "control_plane.reconciliation",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
]

ROOT_URLCONF = "control_plane.urls"
ASGI_APPLICATION = "control_plane.asgi.application"
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES: dict[str, Any] = {
    "default": env.db("DATABASE_URL", default="postgresql://127.0.0.1/control")
    # Each process has a few; what is idle for five minutes goes.
    | {
        "OPTIONS": {
            "pool": {"min_size": 0, "max_size": 8, "max_idle": 300, "timeout": 5},
            # A server that is gone without a word is noticed within a minute.
            "connect_timeout": 5,
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
        }
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

VALKEY_URL = env.str("VALKEY_URL", default="redis://127.0.0.1:6379/0")
# Each request asks it (api/rate_limits.py), and goes on without it when it does not answer at once.
CACHE_TIMEOUT_S = 0.3
CACHES: dict[str, Any] = {
    "default": {
        "BACKEND": "control_plane.shared_cache.SharedRedisCache",
        "LOCATION": VALKEY_URL,
        "OPTIONS": {
            "socket_connect_timeout": CACHE_TIMEOUT_S,
            "socket_timeout": CACHE_TIMEOUT_S,
            "retry": Retry(NoBackoff(), 0),
        },
    }
}
CELERY_BROKER_URL = VALKEY_URL
# One that hangs, or a connection that a firewall has forgotten, is given up and made anew. Workers
# wait a second at a time for tasks, which is less.
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "socket_connect_timeout": 3.0,
    "socket_timeout": 5.0,
    "socket_keepalive": True,
    "health_check_interval": 10,
}
CELERY_TASK_IGNORE_RESULT = True
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# It may be away for as long as it likes.
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TIMEZONE = "UTC"
# A round that no worker has taken until the next one is not needed any more.
CELERY_BEAT_SCHEDULE: dict[str, Any] = {
    "invitations": {
        "task": "accounts.send_invitations",
        "schedule": 5.0,
        "options": {"expires": 5.0},
    },
    # Hints come sooner (control_plane/reconciliation/hints.py).
    "reconcile": {
        "task": "reconciliation.reconcile",
        "schedule": 1.0,
        "options": {"expires": 1.0},
    },
    "follow": {
        "task": "reconciliation.follow",
        "schedule": 2.0,
        "options": {"expires": 2.0},
    },
    "look": {"task": "reconciliation.look", "schedule": 15.0, "options": {"expires": 15.0}},
    "lives": {"task": "reconciliation.lives", "schedule": 10.0, "options": {"expires": 10.0}},
    "repair": {"task": "reconciliation.repair", "schedule": 60.0, "options": {"expires": 60.0}},
    "operations": {"task": "operations.settle", "schedule": 5.0, "options": {"expires": 5.0}},
    "usage": {"task": "usage.read", "schedule": 10.0, "options": {"expires": 10.0}},
    "partitions of usage": {
        "task": "usage.keep_partitions",
        "schedule": 3600.0,
        "options": {"expires": 3600.0},
    },
}

LOGGING = logging_settings(env.str("LOG_LEVEL", default="INFO"))

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
# In the operators' site, all of it UTC.
DATETIME_FORMAT = "Y-m-d H:i:s"
UNFOLD = {"SITE_TITLE": "Tidewheel", "SITE_HEADER": "Tidewheel", "SITE_SUBHEADER": "Operators"}

# Files come from the apps where nobody has collected them.
WHITENOISE_USE_FINDERS = True
STATIC_URL = "static/"
STATIC_ROOT = env.path("STATIC_ROOT", default=str(ROOT / "static"))

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
# scrypt is in the standard library's OpenSSL: memory-hard without another dependency.
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.ScryptPasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]

# People may only make things once their address is known to be theirs.
REQUIRE_VERIFIED_EMAIL = env.bool("REQUIRE_VERIFIED_EMAIL", default=True)
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = "mandatory" if REQUIRE_VERIFIED_EMAIL else "none"
# A code can be typed into a command line, and a link cannot.
ACCOUNT_EMAIL_VERIFICATION_BY_CODE_ENABLED = REQUIRE_VERIFIED_EMAIL
ACCOUNT_PREVENT_ENUMERATION = True
ACCOUNT_SESSION_REMEMBER = True
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes", "webauthn"]
LOGIN_REDIRECT_URL = "/api/v1/docs"
HEADLESS_CLIENTS = ("app", "browser")

# Single sign-on: one OpenID Connect provider, when it is named. Who is known under an address keeps
# his account only when he has connected both himself.
OIDC_SERVER_URL = env.str("OIDC_SERVER_URL", default="")
SOCIALACCOUNT_PROVIDERS: dict[str, Any] = {}
if OIDC_SERVER_URL:
    SOCIALACCOUNT_PROVIDERS["openid_connect"] = {
        "OAUTH_PKCE_ENABLED": True,
        "APPS": [
            {
                "provider_id": "sso",
                "name": env.str("OIDC_NAME", default="Single sign-on"),
                "client_id": env.str("OIDC_CLIENT_ID"),
                "secret": env.str("OIDC_CLIENT_SECRET"),
                "settings": {"server_url": OIDC_SERVER_URL},
            }
        ],
    }

# A mail server that does not answer is given up.
EMAIL_TIMEOUT = 10

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 14 * 24 * 3600
X_FRAME_OPTIONS = "DENY"

# PEM files: who this is to cells, and who signs what their CellAdmin shows.
CELL_ADMIN_TLS_CERTIFICATE = env.str("CELL_ADMIN_TLS_CERTIFICATE", default="")
CELL_ADMIN_TLS_KEY = env.str("CELL_ADMIN_TLS_KEY", default="")
CELL_ADMIN_TLS_CA = env.str("CELL_ADMIN_TLS_CA", default="")

# One caller's requests to REST, and those of all strangers of one address.
REQUESTS_PER_MINUTE = env.int("REQUESTS_PER_MINUTE", default=6000)
STRANGERS_PER_MINUTE = env.int("STRANGERS_PER_MINUTE", default=300)
# So many tenants are made at one address in a day, by whomever, so that nobody fills the cells.
ORGANIZATIONS_PER_ADDRESS_AND_DAY = env.int("ORGANIZATIONS_PER_ADDRESS_AND_DAY", default=20)

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "control_plane.api.authentication.ApiKeyAuthentication",
        "allauth.headless.contrib.rest_framework.authentication.XSessionTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "control_plane.api.schema.RestSchema",
    "EXCEPTION_HANDLER": "control_plane.api.problems.handle",
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "control_plane.api.negotiation.AlwaysJson",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Tidewheel",
    "DESCRIPTION": "Tenants, topics, keys and quotas.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PUBLIC": True,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "control_plane.api.schema.add_problems",
    ],
    "ENUM_NAME_OVERRIDES": {
        "RoleEnum": "control_plane.accounts.models.Role",
        "GrantRoleEnum": "control_plane.access.models.GrantRole",
        "OperationStatusEnum": "control_plane.operations.models.OperationStatus",
    },
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "COMPONENT_SPLIT_REQUEST": True,
}
