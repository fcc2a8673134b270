"""Rule languages: each module turns the rules of one language into rows of subscriptions."""
