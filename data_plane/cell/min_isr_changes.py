"""What becomes of ELRs when min.insync.replicas is lowered.

Those in an ELR have all that was committed, because nothing is committed while the ISR is below
min.insync.replicas. Lower that, and the next record may be committed without them: so the ELRs for
which the ISR is large enough from then on are emptied in the commit that changes the property.

Broker properties given at the start of a process change without a commit; for them the controller
empties such ELRs when it sees them (`with_settled_elr`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from data_plane.cell.changes import AlterConfigs, ChangePartition, apply_changes
from data_plane.cell.metadata import MetadataImage, ResourceType
from data_plane.cell.partition_state import next_epochs, with_settled_elr
from data_plane.cell.settings import MIN_INSYNC_REPLICAS, ControllerSettings


def decide_min_isr_changes(
    image: MetadataImage, changes: Iterable[AlterConfigs], settings: ControllerSettings
) -> Iterator[ChangePartition]:
    """What is to be committed together with `changes`, which are decided on `image`.

    `settings` are those in force before them."""
    relevant = [
        change
        for change in changes
        if any(name == MIN_INSYNC_REPLICAS for name, _ in change.values)
    ]
    if not relevant:
        return
    topics = {
        (change.tenant, change.resource_name)
        for change in relevant
        if change.resource_type == ResourceType.TOPIC
    }
    # A lower default concerns every topic; what it will come to on each broker is not known here
    # (it may have a value of its own from its start), so the lowest that it can be counts.
    default = settings.min_insync_replicas
    for change in relevant:
        if change.resource_type == ResourceType.BROKER:
            value = dict(change.values)[MIN_INSYNC_REPLICAS]
            default = 1 if value is None else min(default, _number(value))
    new_image = apply_changes(image, relevant)
    is_default_changed = any(change.resource_type == ResourceType.BROKER for change in relevant)
    for topic in new_image.topics_in_order():
        if not is_default_changed and (topic.tenant, topic.name) not in topics:
            continue
        own = topic.configs.get(MIN_INSYNC_REPLICAS)
        minimum = default if own is None else _number(own)
        for index, old in enumerate(topic.partitions):
            new = with_settled_elr(old, minimum)
            if new is not old:
                yield ChangePartition(topic.topic_id, index, next_epochs(old, new))


def _number(text: str) -> int:
    """Values were validated before; what is no number is as low as can be."""
    try:
        return int(text)
    except ValueError:
        return 1
