"""The rules that people have added while the team ran: the fold of `rule.*` records.

Law: a rule's id is never used again, so that who removes one removes what he saw.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from protocols.contract import Rule


@dataclass(slots=True)
class Rules:
    """The added rules by id, the newest last."""

    by_id: dict[str, Rule] = field(default_factory=dict[str, Rule])
    added_by: dict[str, str] = field(default_factory=dict[str, str])
    count: int = 0

    def newest_first(self) -> list[Rule]:
        """Return the rules in the order in which they are asked."""
        return list(reversed(self.by_id.values()))

    def apply_added(self, _at: str, fields: Mapping[str, Any]) -> None:
        """Add a rule."""
        self.count += 1
        self.by_id[fields["id"]] = Rule.from_json(fields["rule"])
        self.added_by[fields["id"]] = fields["by"]

    def apply_removed(self, _at: str, fields: Mapping[str, Any]) -> None:
        """Remove a rule."""
        self.by_id.pop(fields["id"], None)
        self.added_by.pop(fields["id"], None)

    def copy(self) -> "Rules":
        """Return an independent fold that shares the immutable rules."""
        return Rules(dict(self.by_id), dict(self.added_by), self.count)

    def to_json(self) -> dict[str, Any]:
        """Return the fold for a snapshot."""
        rules = [[rule_id, rule.to_json(), self.added_by[rule_id]] for rule_id, rule in self.by_id.items()]
        return {"rules": rules, "count": self.count}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Rules":
        """Rebuild the fold from a snapshot."""
        rules = data["rules"]
        return cls({key: Rule.from_json(rule) for key, rule, _ in rules}, {key: by for key, _, by in rules}, data["count"])
