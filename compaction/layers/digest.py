"""Layer 2: what is decided, done and in progress, and which files; how it was found out is dropped. No model is asked."""

from dataclasses import replace

from compaction.draft import Draft, Frame
from compaction.layers.split import Cut, draft_cut
from compaction.state import StateDigest


def digest(draft: Draft, frame: Frame, cut: Cut, state: StateDigest) -> Draft:
    """Return the draft in which a digest stands for what the cut takes away."""
    return replace(draft_cut(draft, cut, frame), kind="digest", state=state)
