"""The check: what is wrong with what is on a broker, by itself and beside a topology, and the cure of each finding."""
