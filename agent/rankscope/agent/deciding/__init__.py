"""What is to be done, asked of the policy and stored; the clock of a restart; timers that were overrun."""
