"""The package alone: every public name can be had without any third-party library, and the package itself costs next to nothing."""

import json
import subprocess
import sys

_PROBE = """
import sys, time, typing, importlib
before = set(sys.modules)
started = time.perf_counter()
import compaction
seconds = time.perf_counter() - started
first = sorted(set(sys.modules) - before)
heavy = {"compaction.draft", "compaction.record", "compaction.summarizer"}
for name in compaction.__all__:
    if compaction._HOMES[name] not in heavy:
        getattr(compaction, name)
loaded = {name.partition(".")[0] for name in sys.modules}
print("\\n" + __import__("json").dumps({"seconds": seconds, "first": first, "loaded": sorted(loaded)}))
"""


def test_compaction_needs_no_library_before_an_edit() -> None:
    """Importing the package loads nothing else of it; what no edit needs loads neither pydantic nor trio nor a client."""
    reports = [json.loads(subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, check=True).stdout) for _ in range(3)]
    assert reports[0]["first"] == ["compaction"]
    assert not {"anthropic", "asyncio", "networkx", "pydantic", "rich", "trio"} & set(reports[0]["loaded"])
    print(f"import compaction: {min(report['seconds'] for report in reports) * 1000:.1f} ms, best of 3")  # told, not judged
