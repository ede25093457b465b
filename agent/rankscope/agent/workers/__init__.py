"""The worker processes of one launch: who they are, how they end, how they are stopped."""
