"""Which ACLs a filter means, by the rules of Kafka's AclBindingFilter.

A filter has a type, a name, a kind of pattern, a principal, a host, an operation and a permission.
Each may be left open (ANY, or no text). The kind of pattern says what the name is:

    LITERAL, PREFIXED   the name of the pattern, of this kind
    ANY                 the name of the pattern, of either kind
    MATCH               the name of a resource: all patterns that are about it

Deliberately absent: whose ACLs they are, and who may ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from data_plane.cell.acls import (
    ANY_NAME,
    Acl,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    ResourcePattern,
    TenantAcls,
)

_UNKNOWN: Final = 0


class AclFilter(NamedTuple):
    """The fields as DescribeAcls and DeleteAcls have them."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @property
    def why_unknown(self) -> str:
        """What of it nobody knows, in Kafka's words; "" when all is known."""
        if not _knows(AclResourceType, self.resource_type) or not _knows(
            PatternType, self.pattern_type
        ):
            return "Unknown patternFilter."
        if not _knows(AclOperation, self.operation) or not _knows(Permission, self.permission):
            return "Unknown entryFilter."
        return ""

    def candidates(self, acls: TenantAcls) -> Iterator[ResourcePattern]:
        """The patterns that it means, found by the name where it has one."""
        if self.name is None or self.resource_type == AclResourceType.ANY:
            yield from (pattern for pattern in acls.by_pattern if self._means(pattern))
            return
        kind, name = self.resource_type, self.name
        names = [(PatternType.LITERAL, name), (PatternType.PREFIXED, name)]
        if self.pattern_type == PatternType.MATCH:
            names = [(PatternType.LITERAL, name)]
            if name != ANY_NAME:
                names.append((PatternType.LITERAL, ANY_NAME))
            lengths = acls.prefix_lengths.get(kind, ())
            names += [(PatternType.PREFIXED, name[:n]) for n in lengths if n <= len(name)]
        for pattern_type, candidate in names:
            pattern = ResourcePattern(kind, pattern_type, candidate)
            if pattern in acls.by_pattern and self._means(pattern):
                yield pattern

    def matching(self, acls: TenantAcls) -> Iterator[Acl]:
        """The ACLs that it means."""
        for pattern in self.candidates(acls):
            for entry in acls.by_pattern[pattern]:
                if (
                    self.principal in (None, entry.principal)
                    and self.host in (None, entry.host)
                    and self.operation in (AclOperation.ANY, entry.operation)
                    and self.permission in (Permission.ANY, entry.permission)
                ):
                    yield Acl(pattern, entry)

    def cost(self, acls: TenantAcls) -> int:
        """How many patterns and entries `matching` looks at."""
        is_wide = self.name is None or self.resource_type == AclResourceType.ANY
        looked_at = len(acls.by_pattern) if is_wide else 1
        return looked_at + sum(len(acls.by_pattern[each]) for each in self.candidates(acls))

    def _means(self, pattern: ResourcePattern) -> bool:
        kind, pattern_type, of = pattern
        if self.resource_type not in (AclResourceType.ANY, kind):
            return False
        wanted, name = self.pattern_type, self.name
        if wanted not in (PatternType.ANY, PatternType.MATCH, pattern_type):
            return False
        if name is None:
            return True
        if wanted != PatternType.MATCH:
            return name == of
        if pattern_type == PatternType.LITERAL:
            return of in (name, ANY_NAME)
        return name.startswith(of)


def _knows(
    kind: type[AclResourceType | PatternType | AclOperation | Permission], number: int
) -> bool:
    return number in kind._value2member_map_
