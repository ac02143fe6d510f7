"""Addresses of the control plane."""

from __future__ import annotations

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from control_plane.health import healthz
from control_plane.tenancy.operator_site import unregister_pages_of_others

# Operators log in as everybody does: with rate limits and a second factor.
admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]
unregister_pages_of_others()

handler404 = "control_plane.api.problems.not_found"
handler500 = "control_plane.api.problems.failed"

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", healthz),
    path("api/v1/", include("control_plane.api.urls")),
    path("accounts/", include("allauth.urls")),
    path("_allauth/", include("allauth.headless.urls")),
    path("operators/", admin.site.urls),
]
