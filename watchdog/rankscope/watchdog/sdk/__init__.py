"""Behind ``job_monitor``: what a training script may say of itself, and how it reaches the agent.

``config`` checks what the user gives, ``scopes`` keeps the open stages, ``execution`` tells which thread or
task is running, ``link`` finds this process's slot and pipe, ``pipe_line`` writes one line into the pipe,
``published`` holds the rank's values and writes them into the slot, ``unsent`` keeps what found the pipe
full, ``stages`` is ``hang_detect``, ``untraced`` keeps ``torch.compile`` out, ``edge`` tells our own failures
from what the program's signal handlers raise.

Runs inside training: errors of the user's own making are raised at the call that makes them, nothing
else ever is. It knows the agent only by its environment variables, the page and the pipe.
"""
