"""The plan: what it takes to turn what is on a broker into what a topology says, and how many keys that moves."""
