"""Hypothesis strategies for valid changes, drawn against the image they will be applied to."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from data_plane.cell.acls import (
    Acl,
    AclEntry,
    AclOperation,
    AclResourceType,
    AddAcls,
    PatternType,
    Permission,
    RemoveAcls,
    ResourcePattern,
)
from data_plane.cell.authors import CELL_ADMIN_SOURCE, KAFKA_SOURCE, Author, NameAuthor
from data_plane.cell.changes import (
    AddPartitions,
    AllocateProducerIds,
    AlterConfigs,
    Change,
    CreateTopic,
    DeleteTopic,
    RegisterBroker,
    apply_change,
)
from data_plane.cell.client_quotas import AlterClientQuotas, QuotaEntity
from data_plane.cell.credentials import (
    DECOY_KEY_BYTES,
    KEY_BYTES,
    Credential,
    DeleteCredential,
    PutCredential,
    PutDecoyKey,
    ScramVerifier,
    certificate_login,
    login_of,
)
from data_plane.cell.declarations import (
    OWNERS,
    TOPIC_KIND,
    Declaration,
    Declared,
    PutDeclaration,
)
from data_plane.cell.features import (
    CLOSED_LEVEL,
    SUPPORTED_FEATURES,
    TENANCY_LEVEL,
    incarnation_with,
    newest_levels,
)
from data_plane.cell.metadata import BrokerImage, MetadataImage, ResourceType
from data_plane.cell.tenant_quotas import PutTenantQuotas, TenantQuotas
from data_plane.cell.tenants import DeleteTenant, PutTenant, PutTenantState, TenantImage

NEWEST_BROKER = BrokerImage(
    1,
    "host",
    9092,
    incarnation_id=incarnation_with("5f", SUPPORTED_FEATURES),
    features=SUPPORTED_FEATURES,
)
# What a new store holds.
NEW_CELL = MetadataImage("cluster", features=newest_levels(SUPPORTED_FEATURES))
NAMES = st.sampled_from(["orders", "pay", "__consumer_offsets", "a.b", "ü"])
TEXTS = st.sampled_from(["1", "", "compact,delete", 'quote " and \n newline', "ß"])
KEYS = st.sampled_from(["retention.ms", "cleanup.policy", "segment.bytes"])
ASSIGNMENTS = st.lists(
    st.sampled_from([(1,), (2,), (1, 2), (2, 1, 3)]), min_size=1, max_size=5
).map(tuple)


def kinds_for(image: MetadataImage, *, has_idle_tenants: bool) -> list[str]:
    """The changes that fit `image`."""
    kinds = ["create", "configs", "producer ids", "broker"]
    if image.topics_of("default"):
        kinds += ["delete", "partitions", "topic configs"]
    if image.metadata_level >= TENANCY_LEVEL:
        kinds += ["tenant", "credential", "decoy key", "declaration", "acls", "quotas", "author"]
    if image.credentials:
        kinds += ["delete credential"]
    if has_idle_tenants:
        kinds += ["delete tenant"]
    if image.acls:
        kinds += ["remove acls"]
    return kinds


@st.composite
def one_change(draw: st.DrawFn, image: MetadataImage) -> Change:
    """A change that fits `image`."""
    idle = sorted(
        image.tenants.keys() - {one.tenant for one in image.credentials.values()} - {"default"}
    )
    kind = draw(st.sampled_from(kinds_for(image, has_idle_tenants=bool(idle))))
    free = sorted(
        {"orders", "pay", "__consumer_offsets", "a.b", "ü"} - image.topics_of("default").keys()
    )
    if kind == "create" and not free:
        kind = "producer ids"
    values = tuple(draw(st.dictionaries(KEYS, st.one_of(st.none(), TEXTS), max_size=3)).items())
    match kind:
        case "create":
            return CreateTopic(
                "default",
                draw(st.sampled_from(free)),
                draw(st.uuids().filter(lambda topic_id: topic_id not in image.topics_by_id)),
                draw(ASSIGNMENTS),
                tuple((key, value) for key, value in values if value is not None),
            )
        case "configs":
            resource = draw(st.sampled_from([(4, ""), (4, "1"), (32, "group")]))
            return AlterConfigs("default", *resource, values)
        case "broker":
            return RegisterBroker(replace(NEWEST_BROKER, node_id=draw(st.integers(1, 3))))
        case "producer ids":
            return AllocateProducerIds(image.next_producer_id, draw(st.integers(1, 1000)))
        case "tenant":
            return PutTenant(draw(tenants(image)))
        case "declaration":
            return PutDeclaration(draw(declarations(image)))
        case "delete tenant":
            return DeleteTenant(draw(st.sampled_from(idle)))
        case "credential":
            return PutCredential(draw(credentials(image)))
        case "delete credential":
            return DeleteCredential(draw(st.sampled_from(sorted(image.credentials))))
        case "author":
            authors = st.builds(
                Author, st.sampled_from([KAFKA_SOURCE, CELL_ADMIN_SOURCE]), TEXTS, TEXTS
            )
            return NameAuthor(draw(st.none() | authors))
        case "decoy key":
            return PutDecoyKey(b"k" * DECOY_KEY_BYTES)
        case "acls":
            tenant = draw(st.sampled_from(sorted({"default", *image.tenants})))
            there = image.acls.get(tenant, ())
            drawn = draw(st.lists(acls().filter(lambda acl: acl not in there), max_size=4))
            return AddAcls(tenant, tuple(dict.fromkeys(drawn)))
        case "quotas":
            return draw(st.one_of(tenant_quotas(image), tenant_states(image), client_quotas(image)))
        case "remove acls":
            tenant = draw(st.sampled_from(sorted(image.acls)))
            removed = st.sampled_from(sorted(image.acls[tenant]))
            return RemoveAcls(tenant, tuple(draw(st.lists(removed, max_size=4, unique=True))))
    topics = image.topics_of("default")
    topic = topics[draw(st.sampled_from(sorted(topics)))]
    if kind == "delete":
        is_named = image.metadata_level > CLOSED_LEVEL
        return DeleteTopic.of(topic) if is_named else DeleteTopic(topic.topic_id)
    if kind == "partitions":
        return AddPartitions(topic.topic_id, draw(ASSIGNMENTS))
    return AlterConfigs("default", ResourceType.TOPIC, topic.name, values)


def acls() -> st.SearchStrategy[Acl]:
    """Any, of few names and principals, so that they meet."""
    patterns = st.builds(
        ResourcePattern,
        st.sampled_from(sorted(set(AclResourceType) - {AclResourceType.ANY})).map(int),
        st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]).map(int),
        st.sampled_from(["*", "o", "or", "orders", "ü", "kafka-cluster"]),
    )
    entries = st.builds(
        AclEntry,
        st.sampled_from(["User:*", "User:alice", "User:bob"]),
        st.sampled_from(["*", "10.0.0.1"]),
        st.sampled_from(sorted(set(AclOperation) - {AclOperation.ANY})).map(int),
        st.sampled_from([Permission.DENY, Permission.ALLOW]).map(int),
    )
    return st.builds(Acl, patterns, entries)


@st.composite
def tenants(draw: st.DrawFn, image: MetadataImage) -> TenantImage:
    """One that is new, or another state and other settings of one that exists."""
    name = draw(st.sampled_from(["acme", "default", "x-1"]))
    known = image.tenant(name)
    cluster_id = f"{name}-{len(image.tenants)}" if known is None else known.cluster_id
    state = draw(st.sampled_from(["active", "a later state"]))
    quotas = draw(st.builds(TenantQuotas, groups=st.one_of(st.none(), st.integers(1, 9))))
    settings = draw(st.dictionaries(KEYS, TEXTS, max_size=2))
    return TenantImage(name, cluster_id, state, settings, quotas=quotas)


def existing_tenants(image: MetadataImage) -> st.SearchStrategy[str]:
    return st.sampled_from(sorted({"default", *image.tenants}))


@st.composite
def tenant_quotas(draw: st.DrawFn, image: MetadataImage) -> PutTenantQuotas:
    limits = st.one_of(st.none(), st.integers(1, 1 << 40))
    quotas = draw(st.builds(TenantQuotas, limits, partitions=limits, users=limits))
    return PutTenantQuotas(draw(existing_tenants(image)), quotas)


def tenant_states(image: MetadataImage) -> st.SearchStrategy[PutTenantState]:
    states = st.sampled_from(["active", "blocked"])
    return st.builds(PutTenantState, existing_tenants(image), states, TEXTS)


@st.composite
def client_quotas(draw: st.DrawFn, image: MetadataImage) -> AlterClientQuotas:
    """Values that are set or taken away, of few entities, so that they meet."""
    names = st.sampled_from([None, "", "alice"])
    entity = draw(st.tuples(names, names).filter(lambda pair: pair != (None, None)))
    numbers = st.one_of(st.none(), st.integers(1, 1 << 40).map(float))
    keys = st.sampled_from(["producer_byte_rate", "request_percentage"])
    values = draw(st.dictionaries(keys, numbers))
    tenant = draw(existing_tenants(image))
    return AlterClientQuotas(tenant, QuotaEntity(*entity), tuple(values.items()))


@st.composite
def verifiers(draw: st.DrawFn, mechanism: str) -> ScramVerifier:
    """One that no password is known of."""
    size = KEY_BYTES[mechanism]
    keys = st.binary(min_size=size, max_size=size)
    salt = draw(st.binary(min_size=1, max_size=20))
    return ScramVerifier(salt, draw(keys), draw(keys), draw(st.integers(4096, 16_384)))


@st.composite
def credentials(draw: st.DrawFn, image: MetadataImage) -> Credential:
    """A login that is new, or other verifiers and networks of one that exists."""
    tenant = draw(st.sampled_from(["default", *image.tenants]))
    principal = draw(st.sampled_from(["alice", "ü"]))
    mechanisms = draw(st.sets(st.sampled_from(sorted(KEY_BYTES)), min_size=1))
    login = login_of(tenant, principal)
    if draw(st.booleans()):
        login, mechanisms = certificate_login("ab" * 32, f"URI:x/{tenant}/{principal}"), set()
    return Credential(
        login,
        tenant,
        principal,
        {mechanism: draw(verifiers(mechanism)) for mechanism in sorted(mechanisms)},
        draw(st.sampled_from([(), ("10.0.0.0/8", "::1/128")])),
        is_disabled=draw(st.booleans()),
        expires_at_ms=draw(st.sampled_from([0, 1, 1 << 50])),
    )


@st.composite
def declarations(draw: st.DrawFn, image: MetadataImage) -> Declaration:
    """Of a new resource, or the next generation of one that exists."""
    known = [item for item in image.declarations.by_id.values() if not item.is_deleted]
    content = draw(TEXTS)
    owner = draw(st.sampled_from(OWNERS))
    if draw(st.booleans()) and known:
        old = draw(st.sampled_from(known))
        generation = old.generation + draw(st.integers(0, 2))
        is_deleted = draw(st.booleans())
        return Declaration(
            old.resource_id, generation, old.declared, owner, content, is_deleted=is_deleted
        )
    number = len(image.declarations)
    thing = Declared(TOPIC_KIND, draw(st.sampled_from(["acme", "default"])), f"t{number}")
    return Declaration(f"r{number}", draw(st.integers(1, 9)), thing, owner, content)


@st.composite
def histories(
    draw: st.DrawFn, size_max: int = 12, image: MetadataImage | None = None
) -> list[Change]:
    """Changes that can be applied one after the other to `image`, an empty one if not given."""
    image = MetadataImage("cluster") if image is None else image
    changes = []
    for _ in range(draw(st.integers(0, size_max))):
        change = draw(one_change(image))
        image = apply_change(image, change)
        changes.append(change)
    return changes
