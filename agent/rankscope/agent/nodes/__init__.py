"""One verdict for a job of many nodes: the protocol of an incident in the store of the job."""
