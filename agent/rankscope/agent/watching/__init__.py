"""The watch thread: feeds the detector, inquires into a silence, finds what is slow."""
