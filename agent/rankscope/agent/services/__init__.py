"""What runs beside the workers for as long as the agent does."""
