"""Layer 3: a history that is all tool calls becomes structured data. No model is asked."""

from dataclasses import replace

from compaction.draft import Draft, Frame
from compaction.layers.split import Cut, draft_cut


def record(draft: Draft, frame: Frame, cut: Cut) -> Draft:
    """Return the draft in which its record stands for what the cut takes away."""
    return replace(draft_cut(draft, cut, frame), kind="record")
