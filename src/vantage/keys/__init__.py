"""What a config key is: its type and bounds, its text notation, schedules, import paths, JSON."""
