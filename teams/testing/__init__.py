"""What users test their own teams with: scripted models, a strict fake endpoint, contract suites."""
