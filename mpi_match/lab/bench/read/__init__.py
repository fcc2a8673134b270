"""How fast input is read: events and subscriptions by compiled code, beside Python's reader of single rows."""
