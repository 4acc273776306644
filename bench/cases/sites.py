"""What a server of many parts costs: a chain of filters, and a thousand sites."""

CASES = []
