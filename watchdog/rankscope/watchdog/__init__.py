"""The watchdog notices: timers, the progress page, the probe in each worker, the detector.

Everything here runs, or may run, inside users' training processes: only the standard library is
imported, and nothing at package import time.
"""
