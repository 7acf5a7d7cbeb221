"""The front end: the record of a run, its defaults and checks. The core imports nothing of it."""
