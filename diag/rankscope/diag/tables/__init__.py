"""Stored records of a job, or of many, as tables: pandas DataFrames, and a Parquet dataset of them."""
