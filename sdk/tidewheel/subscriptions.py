"""Subscriptions: a topic that shows those messages of another one whose tags match a filter.

Brokers keep them as topics with two properties, and any Kafka tool makes and reads them. What
`Client.subscribe(filter=…)` asks for is made here, or found:

    there is none of this name          it is made
    it reads the same topic, and by
      the same filter                   it is used
    it reads anything else              SubscriptionConflict: nobody's filter is changed by a
                                        consumer that starts

So all members of a group read by one filter, the one that the brokers have. Who wants another one
edits it there (`Admin.edit_subscription`), for all members at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidewheel.errors import (
    ConfigurationError,
    InvalidRequest,
    NotAuthorized,
    RetriesUnsupported,
    SubscriptionConflict,
    TopicExists,
    TopicNotFound,
)
from tidewheel.filters import Filter, is_same_filter
from tidewheel.transport.librdkafka.connection import logger

if TYPE_CHECKING:
    from tidewheel.admin import Admin
    from tidewheel.retry_policy import RetryPolicy

SOURCE_PROPERTY: Final = "tidewheel.source"
FILTER_PROPERTY: Final = "tidewheel.filter"
HEADERS_PROPERTY: Final = "tidewheel.headers"
"""Whether brokers look at the tags of a topic's messages; set when it is created."""

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscription: the topic `name` shows what of the topic `source` matches `filter`."""

    name: str
    source: str
    filter: str


def wanted_by(
    topics: tuple[str, ...], group: str | None, filter_text: str, name: str | None
) -> Subscription:
    """What a consumer asks for. Raises ConfigurationError."""
    if len(topics) != 1 or topics[0].startswith("^"):
        raise ConfigurationError(
            "A filter goes with one topic, and so does retry=",
            hint="Name it, and make a consumer for each",
        )
    Filter(filter_text)
    if name is None and group is None:
        raise ConfigurationError(
            "A filter needs a group, or the name of a subscription, and so does retry=",
            hint='Give group="…" or subscription="…"',
        )
    name = f"{topics[0]}.{group}" if name is None else name
    if not _TOPIC_NAME.fullmatch(name) or name == topics[0]:
        raise ConfigurationError(
            f"A subscription cannot be called {name!r}",
            hint='Give subscription="…": letters, digits, dots, dashes and underscores',
        )
    return Subscription(name, topics[0], filter_text)


async def ensure(admin: Admin, wanted: Subscription, retry: RetryPolicy | None = None) -> None:
    """Find it, or make it, with this policy of retries. Raises SubscriptionConflict when one of its
    name is another one, RetriesUnsupported."""
    try:
        found = await admin.subscription(wanted.name)
    except TopicNotFound:
        try:
            await _make(admin, wanted, retry)
        except TopicExists:
            # Another member was faster.
            found = await admin.subscription(wanted.name)
        else:
            return
    except NotAuthorized as error:
        raise NotAuthorized(
            f'How "{wanted.name}" reads cannot be looked at: {error.message}',
            hint="Ask an operator for describe-configs on it (where there is a control plane, a "
            "grant of the role manager has it), or subscribe to it by its name, without filter= "
            "and retry=",
        ) from error
    if found.source != wanted.source:
        raise SubscriptionConflict(
            f'The subscription "{wanted.name}" reads "{found.source}", not "{wanted.source}"',
            hint='Give another name: subscription="…"',
        )
    if not is_same_filter(found.filter, wanted.filter):
        raise SubscriptionConflict(
            f'The subscription "{wanted.name}" reads by the filter "{found.filter}", not by '
            f'"{wanted.filter}"'
        )
    if retry is not None:
        await _compare(admin, wanted.name, retry)


async def _make(admin: Admin, wanted: Subscription, retry: RetryPolicy | None) -> None:
    try:
        await admin.create_subscription(wanted.name, wanted.source, wanted.filter, retry=retry)
    except InvalidRequest as error:
        # The values are good; so it is the names that the brokers do not know.
        if retry is not None and any(name in error.message for name in retry.configs()):
            raise RetriesUnsupported(
                f'"{wanted.name}" cannot have retries: {error.message}'
            ) from error
        raise


async def _compare(admin: Admin, name: str, retry: RetryPolicy) -> None:
    """Like a filter, a policy is not changed by a consumer that starts; but as messages are neither
    lost nor gained by another one, it goes on."""
    found = await admin.retry_policy(name)
    if found.configs() != retry.configs():
        logger.warning(
            'The subscription "%s" has retries of its own, %s, not %s; change them with '
            "Admin.set_retry_policy",
            name,
            found.configs(),
            retry.configs(),
        )
