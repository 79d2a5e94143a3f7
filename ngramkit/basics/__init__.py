"""The ground of every room: errors, results, progress, the machine, the caches, names, and the
limits of a stranger's file."""
