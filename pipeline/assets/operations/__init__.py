"""Around the graph: sensors, alerts, orphaned runs, the Launchpad, the log in a terminal, the resources of a
run.
"""
