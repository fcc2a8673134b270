"""Measures the rate of reading events and subscriptions by compiled code, beside Python's reader of single rows."""
