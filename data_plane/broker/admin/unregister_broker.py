"""UnregisterBroker, version 0: a broker is gone for good.

Its number, address and properties leave the metadata, in one commit. It must have stopped and hold
no replicas, so that nothing is lost by it: drain it first (`broker.drain`), or wait until its
replicas have been rebuilt on others. Apache Kafka asks for neither and leaves replicas behind that
nobody has; here that is refused, with words.
"""

from __future__ import annotations

from collections.abc import Sequence

from data_plane.broker.request.api import Deferred, HandlerTable, RequestContext
from data_plane.broker.request.namespaces import Topics
from data_plane.broker.request.refusal import Refusal, commit_refusal
from data_plane.broker.services import Services
from data_plane.cell.changes import AlterConfigs, Change, UnregisterBroker
from data_plane.cell.metadata import MetadataImage, ResourceType
from data_plane.cell.tenants import DEFAULT_TENANT
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from data_plane.wire.messages.unregister_broker_response import UnregisterBrokerResponse
from data_plane.wire.registry import ApiKey

MIN_VERSION, MAX_VERSION = 0, 0


def handle_unregister_broker(
    services: Services, context: RequestContext, request: UnregisterBrokerRequest, now_ms: int
) -> Deferred[UnregisterBrokerResponse]:
    deferred: Deferred[UnregisterBrokerResponse] = Deferred()

    def decide(image: MetadataImage) -> Sequence[Change]:
        return decide_unregistration(image, request.broker_id, context.cell_topics)

    def done(error: BaseException | None) -> None:
        response = UnregisterBrokerResponse(error_message=None)
        if error is not None:
            refusal = error if isinstance(error, Refusal) else commit_refusal(error)
            response.error_code = int(refusal.code)
            response.error_message = refusal.message
        deferred.complete(response)

    services.metadata.write(decide, done, author=context.author)
    return deferred


def decide_unregistration(image: MetadataImage, node_id: int, topics: Topics) -> tuple[Change, ...]:
    """Raises Refusal. Of the replicas in the way one of `topics` is named."""
    broker = image.brokers.get(node_id)
    if broker is None:
        raise Refusal(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {node_id} is not currently registered"
        )
    if not broker.is_fenced:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Broker {node_id} is in service: stop it first.")
    held = [
        (topic, index)
        for topic in image.topics_by_id.values()
        for index, partition in enumerate(topic.partitions)
        if node_id in partition.replicas
    ]
    if held:
        # Which topics others have is nobody's business, but operators'.
        known = topics.within(image)
        named = [each for each in held if known.by_id(each[0].topic_id) is not None]
        what = f"{len(held)} replicas"
        if named:
            topic, index = named[0]
            what = f"a replica of {known.name_of(topic)}-{index}"
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Broker {node_id} has {what}: drain it first.")
    changes: list[Change] = [UnregisterBroker(node_id, broker.broker_epoch)]
    own = image.config_of_broker(str(node_id))
    if own:
        values = tuple((name, None) for name in own)
        changes.append(AlterConfigs(DEFAULT_TENANT, ResourceType.BROKER, str(node_id), values))
    return tuple(changes)


def register(table: HandlerTable) -> None:
    table.register(ApiKey.UNREGISTER_BROKER, MIN_VERSION, MAX_VERSION, handle_unregister_broker)
