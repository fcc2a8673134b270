"""Offers the events of files and streams as batches, with the account of rejected rows."""
