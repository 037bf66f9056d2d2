"""What goes with jobs: configurations and workspaces."""
