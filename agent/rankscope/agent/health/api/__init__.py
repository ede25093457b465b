"""The API under ``/v1``: records, settings, analyse now, a stream. All of it needs the job's token."""
