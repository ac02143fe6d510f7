"""ApiVersions, versions 0 to 4: what this broker answers, read from the handler table.

No features are advertised: group.version would promise the consumer protocol of KIP-848,
transaction.version transactions, metadata.version a KRaft quorum. Clients take a missing feature
for "not there" and use what works (classic groups, no transactions).

The version check happens in the dispatcher: an unsupported version is answered in version 0.
"""

from __future__ import annotations

import re

from data_plane.broker.api import HandlerTable, RequestContext
from data_plane.broker.dispatch import api_version_items
from data_plane.broker.services import Services
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.api_versions_request import ApiVersionsRequest
from data_plane.wire.messages.api_versions_response import ApiVersionsResponse
from data_plane.wire.registry import ApiKey

MIN_VERSION = 0
MAX_VERSION = 4
SOFTWARE_NAME_VERSION = 3

# KIP-511: what a client may call itself.
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle_api_versions(
    services: Services, context: RequestContext, request: ApiVersionsRequest, now_ms: int
) -> ApiVersionsResponse:
    if context.api_version >= SOFTWARE_NAME_VERSION:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE_NAME.fullmatch(name) and _SOFTWARE_NAME.fullmatch(version)):
            return ApiVersionsResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        context.connection.client_software_name = name
        context.connection.client_software_version = version
    return ApiVersionsResponse(api_keys=api_version_items(services.handlers.entries()))


def register(table: HandlerTable) -> None:
    table.register(ApiKey.API_VERSIONS, MIN_VERSION, MAX_VERSION, handle_api_versions)
