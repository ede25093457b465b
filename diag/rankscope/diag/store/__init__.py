"""The job folder: plain files, append-only with one writer, or written beside and renamed."""
