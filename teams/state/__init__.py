"""The state of a team: pure folds of the journal, and the commands that are decided against them.

Nothing here does I/O, knows a clock, or imports trio; `teams.engine` is the shell around it.
"""
