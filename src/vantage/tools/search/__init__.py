"""`vantage search`: many short trainings that find the config keys' values for one long one."""
