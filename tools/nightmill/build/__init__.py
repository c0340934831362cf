"""The implement loop: milestones, workspaces, attempts, merging."""
