"""What to do about what ``diag doctor`` finds missing: texts to copy."""

from __future__ import annotations

from typing import Final

PTRACE_CONTAINER: Final = """\
Docker:      docker run --cap-add=SYS_PTRACE ...
Kubernetes:  in the container's entry of the pod:
               securityContext:
                 capabilities:
                   add: ["SYS_PTRACE"]
             from outside, for a pod that runs: kubectl debug -it POD --profile=sysadmin --target=CONTAINER"""
PTRACE_HOST: Final = "run as the job's user or as root"
YAMA: Final = """\
until the next boot: sysctl kernel.yama.ptrace_scope=0 (on the host; containers have no value of their own)
or run diag as root, or with CAP_SYS_PTRACE; jobs under diag run are its agent's children and can be read"""
YAMA_CLOSED: Final = "boot with another kernel.yama.ptrace_scope: the value 3 cannot be changed while it runs"
SHARED_MEMORY: Final = """\
Docker:      docker run --shm-size=8g ... (or --ipc=host)
Kubernetes:  volumes: [{name: shm, emptyDir: {medium: Memory}}]
             volumeMounts: [{name: shm, mountPath: /dev/shm}]"""
HIDEPID: Final = "mount -o remount,hidepid=0 /proc, or run as root (or in the group of the gid= option)"
PID_NAMESPACE: Final = """\
Kubernetes:  shareProcessNamespace: true, or kubectl debug --target=CONTAINER
Docker:      docker run --pid=container:NAME ..."""


def install(tool: str) -> str:
    """How to get a tool."""
    return f"pip install {tool} (into the environment of diag: the copy beside its Python is found first)"


def ptrace(*, in_container: bool) -> str:
    """How to get the right to trace."""
    return PTRACE_CONTAINER if in_container else PTRACE_HOST
