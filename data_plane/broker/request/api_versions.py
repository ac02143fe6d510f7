"""ApiVersions, versions 0 to 4: what this broker answers, read from the handler table, and which
levels of features it supports and the cell has finalized.

`metadata.version` counts Tidewheel's own levels (data_plane/cell/features.py), not Kafka's. Kafka's
other features are not advertised: group.version would promise the consumer protocol of KIP-848,
transaction.version transactions. Clients take a missing feature for "not there" and use what works
(classic groups, no transactions).

The version check happens in the dispatcher: an unsupported version is answered in version 0.
"""

from __future__ import annotations

import re

from data_plane.broker.request.api import HandlerTable, RequestContext
from data_plane.broker.request.dispatch import api_version_items
from data_plane.broker.services import Services
from data_plane.cell.features import METADATA_VERSION
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.api_versions_request import ApiVersionsRequest
from data_plane.wire.messages.api_versions_response import (
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION = 0
MAX_VERSION = 4
SOFTWARE_NAME_VERSION = 3
# Below it, clients fail on a feature that may be off: one whose lowest level is 0.
OPTIONAL_FEATURES_VERSION = 4

# Keys of Tidewheel's own APIs, and what its SDK calls itself.
FIRST_OWN_KEY = 20_000
OWN_SOFTWARE_NAME = "tidewheel"

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
    entries = services.handlers.entries()
    if context.connection.client_software_name != OWN_SOFTWARE_NAME:
        # Other clients meet no key that Kafka does not have.
        entries = [entry for entry in entries if entry.api_key < FIRST_OWN_KEY]
    image = services.image
    # How often something changes in the cell is not for tenants, nor for strangers.
    may_see = context.connection.gate.is_authenticated and context.may_see_cell
    levels = {METADATA_VERSION: image.metadata_level, **image.features}
    return ApiVersionsResponse(
        api_keys=api_version_items(entries),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, lowest, highest in services.features
            if lowest > 0 or context.api_version >= OPTIONAL_FEATURES_VERSION
        ],
        finalized_features_epoch=image.version if may_see else 0,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in levels.items()
        ],
    )


def register(table: HandlerTable) -> None:
    table.register(
        ApiKey.API_VERSIONS, MIN_VERSION, MAX_VERSION, handle_api_versions, is_for_strangers=True
    )
